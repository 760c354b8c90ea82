# bash completion for archmax
_archmax_slugs() {
  local file slug
  for file in workflows/*/workflow.yaml; do
    slug=${file#workflows/} slug=${slug%/workflow.yaml}
    # compgen -W expands its words: a name that is more than a plain word is never offered
    case "$slug" in *[!A-Za-z0-9._-]*|"*") ;; *) printf "%s\n" "$slug" ;; esac
  done
}
_archmax() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local command="${COMP_WORDS[1]}" options words
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "run test validate sessions decide reply deliver up worker api beat submit turns keys new graph case schema explain completion help --help --version" -- "$current"))
    return
  fi
  case "$previous" in
    --root) COMPREPLY=($(compgen -d -- "$current")); return ;;
    --workflow) COMPREPLY=($(compgen -W "$(_archmax_slugs)" -- "$current")); return ;;
    --format) COMPREPLY=($(compgen -W "mermaid dot svg" -- "$current")); return ;;
    --trigger|--variables|--session|--session-path|--record|--to|--comment|--bind|--port|--flower-port|--workers|--idempotency-key|--url|--scopes|--workflows|--rate-limit|--max-body-bytes|--title|--out) return ;;
  esac
  case "$command" in
    run) options="--trigger --variables --session --session-path --record --verbose --root --help"; words="$(_archmax_slugs)" ;;
    test) options="--json --verbose --live --root --help"; words="$(_archmax_slugs)" ;;
    validate) options="--json --root --help"; words="$(_archmax_slugs)" ;;
    sessions) options="--workflow --json --root --help"; words="" ;;
    decide) options="--to --comment --workflow --verbose --root --help"; words="" ;;
    reply) options="--workflow --verbose --root --help"; words="" ;;
    deliver) options="--trigger --variables --workflow --verbose --root --help"; words="" ;;
    up) options="--bind --port --flower-port --workers --root --help"; words="" ;;
    worker) options="--root --help"; words="" ;;
    api) options="--bind --port --root --help"; words="" ;;
    beat) options="--root --help"; words="" ;;
    submit) options="--trigger --variables --session --idempotency-key --wait --url --verbose --json --root --help"; words="$(_archmax_slugs)" ;;
    turns) options="--follow --cancel --dead --url --verbose --json --root --help"; words="" ;;
    keys) options="--scopes --workflows --rate-limit --max-body-bytes --json --root --help"; words="new list revoke" ;;
    new) options="--title --root --help"; words="" ;;
    graph) options="--format --root --help"; words="$(_archmax_slugs)" ;;
    case) options="--out --workflow --root --help"; words="" ;;
    schema) options="--root --help"; words="workflow case" ;;
    explain) options="--root --help"; words="" ;;
    completion) options="--root --help"; words="bash zsh fish" ;;
    help) options="--root --help"; words="run test validate sessions decide reply deliver up worker api beat submit turns keys new graph case schema explain completion help" ;;
    *) return ;;
  esac
  if [ "${current#-}" != "$current" ]; then words=$options; fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _archmax archmax
