# fish completion for archmax
function __archmax_slugs
    for file in workflows/*/workflow.yaml
        path basename (path dirname $file)
    end
end
complete -c archmax -f
complete -c archmax -n __fish_use_subcommand -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -l version -d 'print the version of archmax-fleet'
complete -c archmax -n __fish_use_subcommand -a run -d 'send one message to a workflow and print its reply'
complete -c archmax -n "__fish_seen_subcommand_from run" -l trigger -d 'declared trigger that starts the turn (default: manual)' -r
complete -c archmax -n "__fish_seen_subcommand_from run" -l variables -d 'JSON object; its members are stored locked' -r
complete -c archmax -n "__fish_seen_subcommand_from run" -l session -d 'continue this session, or start one under this id' -r
complete -c archmax -n "__fish_seen_subcommand_from run" -l session-path -d 'dotted path into --variables that holds the session id' -r
complete -c archmax -n "__fish_seen_subcommand_from run" -l record -d 'write what the model said as a model script' -r
complete -c archmax -n "__fish_seen_subcommand_from run" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from run" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from run" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from run" -a '(__archmax_slugs)'
complete -c archmax -n __fish_use_subcommand -a test -d 'run the cases of a workflow'
complete -c archmax -n "__fish_seen_subcommand_from test" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from test" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from test" -l live -d 'use the configured model, not the cases\' model scripts'
complete -c archmax -n "__fish_seen_subcommand_from test" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from test" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from test" -a '(__archmax_slugs)'
complete -c archmax -n __fish_use_subcommand -a validate -d 'check a workflow and its cases without running anything'
complete -c archmax -n "__fish_seen_subcommand_from validate" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from validate" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from validate" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from validate" -a '(__archmax_slugs)'
complete -c archmax -n __fish_use_subcommand -a sessions -d 'list the sessions, or show one in full'
complete -c archmax -n "__fish_seen_subcommand_from sessions" -l workflow -d 'slug under workflows/; may be left out when there is one' -r -a '(__archmax_slugs)'
complete -c archmax -n "__fish_seen_subcommand_from sessions" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from sessions" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from sessions" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a decide -d 'take a transition of a session that awaits a decision'
complete -c archmax -n "__fish_seen_subcommand_from decide" -l to -d 'state that the decision moves to' -r
complete -c archmax -n "__fish_seen_subcommand_from decide" -l comment -d 'why; kept with the decision' -r
complete -c archmax -n "__fish_seen_subcommand_from decide" -l workflow -d 'slug under workflows/; may be left out when there is one' -r -a '(__archmax_slugs)'
complete -c archmax -n "__fish_seen_subcommand_from decide" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from decide" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from decide" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a reply -d 'send a message to a session that awaits a decision; the decision stays pending'
complete -c archmax -n "__fish_seen_subcommand_from reply" -l workflow -d 'slug under workflows/; may be left out when there is one' -r -a '(__archmax_slugs)'
complete -c archmax -n "__fish_seen_subcommand_from reply" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from reply" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from reply" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a deliver -d 'deliver a trigger to a session that awaits input'
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l trigger -d 'id of the trigger to deliver' -r
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l variables -d 'JSON object; its members are stored locked' -r
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l workflow -d 'slug under workflows/; may be left out when there is one' -r -a '(__archmax_slugs)'
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from deliver" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a up -d 'keep a whole fleet running on this machine until Ctrl-C'
complete -c archmax -n "__fish_seen_subcommand_from up" -l bind -d 'address the API listens on (default: ARCHMAX_API_HOST)' -r
complete -c archmax -n "__fish_seen_subcommand_from up" -l port -d 'port of the API (default: ARCHMAX_API_PORT)' -r
complete -c archmax -n "__fish_seen_subcommand_from up" -l flower-port -d 'port of Flower (default: ARCHMAX_FLOWER_PORT)' -r
complete -c archmax -n "__fish_seen_subcommand_from up" -l workers -d 'worker processes (default: 1)' -r
complete -c archmax -n "__fish_seen_subcommand_from up" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from up" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a worker -d 'run one worker process'
complete -c archmax -n "__fish_seen_subcommand_from worker" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from worker" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a api -d 'run the HTTP API'
complete -c archmax -n "__fish_seen_subcommand_from api" -l bind -d 'address the API listens on (default: ARCHMAX_API_HOST)' -r
complete -c archmax -n "__fish_seen_subcommand_from api" -l port -d 'port of the API (default: ARCHMAX_API_PORT)' -r
complete -c archmax -n "__fish_seen_subcommand_from api" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from api" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a beat -d 'fire the schedules of the workspace\'s triggers'
complete -c archmax -n "__fish_seen_subcommand_from beat" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from beat" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a submit -d 'enqueue a turn through the API'
complete -c archmax -n "__fish_seen_subcommand_from submit" -l trigger -d 'declared trigger that starts the turn (default: manual)' -r
complete -c archmax -n "__fish_seen_subcommand_from submit" -l variables -d 'JSON object; its members are stored locked' -r
complete -c archmax -n "__fish_seen_subcommand_from submit" -l session -d 'continue this session, or start one under this id' -r
complete -c archmax -n "__fish_seen_subcommand_from submit" -l idempotency-key -d 'the same key is the same turn for a day' -r
complete -c archmax -n "__fish_seen_subcommand_from submit" -l wait -d 'draw the turn\'s events until it ends, and print its reply'
complete -c archmax -n "__fish_seen_subcommand_from submit" -l url -d 'base URL of the fleet\'s API (default: ARCHMAX_URL)' -r
complete -c archmax -n "__fish_seen_subcommand_from submit" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from submit" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from submit" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from submit" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from submit" -a '(__archmax_slugs)'
complete -c archmax -n __fish_use_subcommand -a turns -d 'show a turn of the fleet, or each session\'s newest'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l follow -d 'draw its events until it ends, and print its reply'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l cancel -d 'ask it to stop'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l dead -d 'list what was given up: turns that failed in the fleet, and webhooks'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l url -d 'base URL of the fleet\'s API (default: ARCHMAX_URL)' -r
complete -c archmax -n "__fish_seen_subcommand_from turns" -l verbose -d 'one raw line per event before the drawn one'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from turns" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a keys -d 'make, list and revoke keys of the HTTP API'
complete -c archmax -n "__fish_seen_subcommand_from keys" -l scopes -d 'comma-separated: read, enqueue, decide, admin' -r
complete -c archmax -n "__fish_seen_subcommand_from keys" -l workflows -d 'comma-separated slugs the key is bound to (default: all)' -r
complete -c archmax -n "__fish_seen_subcommand_from keys" -l rate-limit -d 'requests a second or minute, as 5/s or 30/min (default: the settings\')' -r
complete -c archmax -n "__fish_seen_subcommand_from keys" -l max-body-bytes -d 'longest request body (default: the settings\')' -r
complete -c archmax -n "__fish_seen_subcommand_from keys" -l json -d 'print one JSON document'
complete -c archmax -n "__fish_seen_subcommand_from keys" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from keys" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from keys" -a 'new list revoke'
complete -c archmax -n __fish_use_subcommand -a new -d 'write a small valid workflow with one case and its model script'
complete -c archmax -n "__fish_seen_subcommand_from new" -l title -d 'title of the workflow' -r
complete -c archmax -n "__fish_seen_subcommand_from new" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from new" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a graph -d 'draw a workflow'
complete -c archmax -n "__fish_seen_subcommand_from graph" -l format -d 'mermaid (default), dot or svg' -r -a 'mermaid dot svg'
complete -c archmax -n "__fish_seen_subcommand_from graph" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from graph" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from graph" -a '(__archmax_slugs)'
complete -c archmax -n __fish_use_subcommand -a case -d 'write a case and its model script from a recorded session'
complete -c archmax -n "__fish_seen_subcommand_from case" -l out -d 'case file (*.test.yaml) or directory (default: the workflow\'s tests/)' -r
complete -c archmax -n "__fish_seen_subcommand_from case" -l workflow -d 'slug under workflows/; may be left out when there is one' -r -a '(__archmax_slugs)'
complete -c archmax -n "__fish_seen_subcommand_from case" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from case" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a schema -d 'print a JSON Schema for editors'
complete -c archmax -n "__fish_seen_subcommand_from schema" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from schema" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from schema" -a 'workflow case'
complete -c archmax -n __fish_use_subcommand -a explain -d 'explain a diagnostic of validate'
complete -c archmax -n "__fish_seen_subcommand_from explain" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from explain" -l help -d 'show the help of the command; also -h'
complete -c archmax -n __fish_use_subcommand -a completion -d 'print a completion script for a shell'
complete -c archmax -n "__fish_seen_subcommand_from completion" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from completion" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from completion" -a 'bash zsh fish'
complete -c archmax -n __fish_use_subcommand -a help -d 'show the commands, or the help of one'
complete -c archmax -n "__fish_seen_subcommand_from help" -l root -d 'the workspace (default: the current directory)' -r -a '(__fish_complete_directories)'
complete -c archmax -n "__fish_seen_subcommand_from help" -l help -d 'show the help of the command; also -h'
complete -c archmax -n "__fish_seen_subcommand_from help" -a 'run test validate sessions decide reply deliver up worker api beat submit turns keys new graph case schema explain completion help'
