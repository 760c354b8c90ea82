#compdef archmax
_archmax_slugs() {
  local -a slugs
  slugs=(workflows/*/workflow.yaml(N:h:t))
  compadd -a slugs
}
_archmax() {
  local -a commands
  commands=(
    'run:send one message to a workflow and print its reply'
    'test:run the cases of a workflow'
    'validate:check a workflow and its cases without running anything'
    'sessions:list the sessions, or show one in full'
    'decide:take a transition of a session that awaits a decision'
    'reply:send a message to a session that awaits a decision; the decision stays pending'
    'deliver:deliver a trigger to a session that awaits input'
    'up:keep a whole fleet running on this machine until Ctrl-C'
    'worker:run one worker process'
    'api:run the HTTP API'
    'beat:fire the schedules of the workspace'\''s triggers'
    'submit:enqueue a turn through the API'
    'turns:show a turn of the fleet, or each session'\''s newest'
    'keys:make, list and revoke keys of the HTTP API'
    'new:write a small valid workflow with one case and its model script'
    'graph:draw a workflow'
    'case:write a case and its model script from a recorded session'
    'schema:print a JSON Schema for editors'
    'explain:explain a diagnostic of validate'
    'completion:print a completion script for a shell'
    'help:show the commands, or the help of one'
  )
  local -a options
  options=(
    '--help:show the help of the command; also -h'
    '--version:print the version of archmax-fleet'
  )
  if (( CURRENT == 2 )); then
    if [[ "$PREFIX" == -* ]]; then _describe -o option options; else _describe command commands; fi
    return
  fi
  local command="$words[2]"
  shift words; (( CURRENT-- ))
  case "$command" in
    run) _arguments '--trigger[declared trigger that starts the turn (default\: manual)]:id: ' '--variables[JSON object; its members are stored locked]:json: ' '--session[continue this session, or start one under this id]:id: ' '--session-path[dotted path into --variables that holds the session id]:path: ' '--record[write what the model said as a model script]:file: ' '--verbose[one raw line per event before the drawn one]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:workflow:_archmax_slugs' '*:prompt: ' ;;
    test) _arguments '--json[print one JSON document]' '--verbose[one raw line per event before the drawn one]' '--live[use the configured model, not the cases'\'' model scripts]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:workflow:_archmax_slugs' '2:filter: ' ;;
    validate) _arguments '--json[print one JSON document]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:workflow:_archmax_slugs' ;;
    sessions) _arguments '--workflow[slug under workflows/; may be left out when there is one]:slug:_archmax_slugs' '--json[print one JSON document]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:session: ' ;;
    decide) _arguments '--to[state that the decision moves to]:state: ' '--comment[why; kept with the decision]:text: ' '--workflow[slug under workflows/; may be left out when there is one]:slug:_archmax_slugs' '--verbose[one raw line per event before the drawn one]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:session: ' ;;
    reply) _arguments '--workflow[slug under workflows/; may be left out when there is one]:slug:_archmax_slugs' '--verbose[one raw line per event before the drawn one]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:session: ' '*:message: ' ;;
    deliver) _arguments '--trigger[id of the trigger to deliver]:id: ' '--variables[JSON object; its members are stored locked]:json: ' '--workflow[slug under workflows/; may be left out when there is one]:slug:_archmax_slugs' '--verbose[one raw line per event before the drawn one]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:session: ' ;;
    up) _arguments '--bind[address the API listens on (default\: ARCHMAX_API_HOST)]:address: ' '--port[port of the API (default\: ARCHMAX_API_PORT)]:n: ' '--flower-port[port of Flower (default\: ARCHMAX_FLOWER_PORT)]:n: ' '--workers[worker processes (default\: 1)]:n: ' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' ;;
    worker) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' ;;
    api) _arguments '--bind[address the API listens on (default\: ARCHMAX_API_HOST)]:address: ' '--port[port of the API (default\: ARCHMAX_API_PORT)]:n: ' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' ;;
    beat) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' ;;
    submit) _arguments '--trigger[declared trigger that starts the turn (default\: manual)]:id: ' '--variables[JSON object; its members are stored locked]:json: ' '--session[continue this session, or start one under this id]:id: ' '--idempotency-key[the same key is the same turn for a day]:key: ' '--wait[draw the turn'\''s events until it ends, and print its reply]' '--url[base URL of the fleet'\''s API (default\: ARCHMAX_URL)]:url: ' '--verbose[one raw line per event before the drawn one]' '--json[print one JSON document]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:workflow:_archmax_slugs' '*:message: ' ;;
    turns) _arguments '--follow[draw its events until it ends, and print its reply]' '--cancel[ask it to stop]' '--dead[list what was given up\: turns that failed in the fleet, and webhooks]' '--url[base URL of the fleet'\''s API (default\: ARCHMAX_URL)]:url: ' '--verbose[one raw line per event before the drawn one]' '--json[print one JSON document]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:turn: ' ;;
    keys) _arguments '--scopes[comma-separated\: read, enqueue, decide, admin]:scopes: ' '--workflows[comma-separated slugs the key is bound to (default\: all)]:slugs: ' '--rate-limit[requests a second or minute, as 5/s or 30/min (default\: the settings'\'')]:rate: ' '--max-body-bytes[longest request body (default\: the settings'\'')]:n: ' '--json[print one JSON document]' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:action:(new list revoke)' '2:name: ' ;;
    new) _arguments '--title[title of the workflow]:text: ' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:slug: ' ;;
    graph) _arguments '--format[mermaid (default), dot or svg]:format:(mermaid dot svg)' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:workflow:_archmax_slugs' ;;
    case) _arguments '--out[case file (*.test.yaml) or directory (default\: the workflow'\''s tests/)]:path: ' '--workflow[slug under workflows/; may be left out when there is one]:slug:_archmax_slugs' '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:session: ' '2:case: ' ;;
    schema) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:document:(workflow case)' ;;
    explain) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:id: ' ;;
    completion) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:shell:(bash zsh fish)' ;;
    help) _arguments '--root[the workspace (default\: the current directory)]:dir:_files -/' '--help[show the help of the command; also -h]' '1:command:(run test validate sessions decide reply deliver up worker api beat submit turns keys new graph case schema explain completion help)' ;;
  esac
}
if [ "$funcstack[1]" = "_archmax" ]; then _archmax "$@"; else compdef _archmax archmax; fi
