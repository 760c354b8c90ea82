#!/bin/sh
# Ask a fleet for a refund, follow it until it waits for a person, and decide it. Needs curl alone.
#
#   ARCHMAX_KEY=amx_… sh refund.sh SO-4101
set -eu
: "${ARCHMAX_URL:=http://127.0.0.1:8000}"
order=$1
session=refund-$order

# A request to the fleet. curl sends it again after 429, 503 and a refused connection; an input carries a key, so that is safe.
fleet() {
    method=$1 path=$2
    shift 2
    curl --silent --show-error --fail-with-body --retry 5 --retry-connrefused --request "$method" \
        --header "Authorization: Bearer ${ARCHMAX_KEY:?make one with: archmax keys new}" \
        --header "Content-Type: application/json" "$@" "$ARCHMAX_URL$path"
}

# Wait for a turn's end, 30 seconds a request, and print how it ended.
outcome_of() {
    while :; do
        turn=$(fleet GET "/v1/turns/$1?wait=30")
        case $turn in
            *'"status":"settled"'* | *'"status":"refused"'* | *'"status":"cancelled"'*) break ;;
        esac
    done
    printf '%s\n' "$turn"
}

fleet POST /v1/workflows/order-desk/sessions --header "Idempotency-Key: refund/$order" --data @- <<BODY
{"sessionId": "$session",
 "message": "From: orders@harborbakery.example — The bread tins of $order are dented, please refund them."}
BODY
echo
outcome_of "$session.1"

# What the decision rests on, then the decision: its turn is the session's second.
fleet GET "/v1/sessions/$session/files/scratchpad/refund.json"
echo
fleet POST "/v1/sessions/$session/decisions" --header "Idempotency-Key: decide/$order" \
    --data '{"to": "refund-closed", "comment": "Checked with the photos."}'
echo
outcome_of "$session.2"
