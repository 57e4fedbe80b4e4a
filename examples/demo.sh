#!/usr/bin/env bash
# Three lanes on one machine: what they remember, what they keep apart, and what they can prove.
# `make demo` and `make run` call this after the build.
#
#   examples/demo.sh         shows each promise, and keeps the program's own answers in target/demo/steps/
#   examples/demo.sh serve   leaves the lanes serving and prints a line to try
#
# It does not judge: tests/demo_check does, from the stored answers alone. What is printed here is for people.
#
#   LANEKEEPER        the program; default target/debug/lanekeeper
#   DEMO_BREAK        forget|scope|chain|idem: does that one step wrongly, for real, so that the judge must see it
#   DEMO_PATIENCE_S   how long anything may take; default 300
#   DEMO_LISTEN       address of `serve`; default 127.0.0.1:7070
#
# Needs bash, curl and python3 (which the model is fetched with anyway).
set -euo pipefail
umask 077

cd "$(dirname "${BASH_SOURCE[0]}")/.."
mode=${1:-show}
sabotage=${DEMO_BREAK:-}
patience=${DEMO_PATIENCE_S:-300}
lanekeeper=${LANEKEEPER:-target/debug/lanekeeper}
unset LANEKEEPER_URL LANEKEEPER_LANE LANEKEEPER_TOKEN

die() { printf 'demo: %s\n' "$*" >&2; exit 1; }

case $mode in
show) demo=target/demo listen=127.0.0.1:0 ;;
serve) demo=target/run listen=${DEMO_LISTEN:-127.0.0.1:7070} ;;
*) die "usage: examples/demo.sh [serve]" ;;
esac
case $sabotage in
'' | forget | scope | chain | idem) ;;
*) die "DEMO_BREAK must be forget, scope, chain or idem, not '$sabotage'" ;;
esac
[[ -x $lanekeeper ]] || die "there is no program at $lanekeeper: run \`make demo\`, or set LANEKEEPER"

data=$demo/data tokens=$demo/tokens answers=$demo/answers steps=$demo/steps
server='' url=''

# --- the server -------------------------------------------------------------------------------------------------

stop_server() {
    [[ -n $server ]] || return 0
    local pid=$server
    server=''
    kill -TERM "$pid" 2>/dev/null || true
    # It promises five seconds; whoever takes twice as long is not waited for.
    for ((tenths = 0; tenths < 100; tenths++)); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
}
trap stop_server EXIT
trap 'exit 143' TERM
# Ctrl-C is how serving ends; a show that is broken off has failed.
if [[ $mode == serve ]]; then trap 'exit 0' INT; else trap 'exit 130' INT; fi

start_server() {
    # There before the server is: it is read while it starts.
    : >"$demo/server.out"
    "$lanekeeper" local --lanes examples/lanes --data "$data" --listen "$listen" >"$demo/server.out" 2>"$demo/server.log" &
    server=$!
    local deadline=$((SECONDS + patience))
    until url=$(sed -n 's|^lanekeeper listening on \(http://.*\)$|\1|p' "$demo/server.out") && [[ -n $url ]]; do
        kill -0 "$server" 2>/dev/null || { server=''; tail -n 5 "$demo/server.log" >&2; die 'the server did not start'; }
        ((SECONDS < deadline)) || die "the server was not ready within $patience s; see $demo/server.log"
        sleep 0.1
    done
}

# mint FILE LANE PRINCIPAL: a token, in files that only we can read and never on a command line.
mint() {
    "$lanekeeper" token --data "$data" --lane "$2" --principal "$3" --ttl 24h >"$tokens/$1"
    printf 'Authorization: Bearer %s\n' "$(<"$tokens/$1")" >"$tokens/$1.header"
}

# as WHO COMMAND …: the program, with WHO's token.
as() {
    local who=$1 command=$2
    shift 2
    "$lanekeeper" "$command" --url "$url" --token-file "$tokens/$who" "$@"
}

# --- answers ----------------------------------------------------------------------------------------------------

# pick EXPRESSION: of the JSON on stdin, which is called `answer`.
pick() { python3 -c "import json, sys; answer = json.load(sys.stdin); print($1)"; }

# A listing is one answer a page; this makes a list of them.
pages() { paste -sd, - | sed 's/^/[/; s/$/]/'; }

# step NAME (KEY FILE)…: stores the answers of a step under their keys, as they came.
step() {
    local file=$steps/$1.json separator=''
    shift
    {
        printf '{'
        while (($#)); do
            printf '%s"%s":' "$separator" "$1"
            cat "$2"
            separator=,
            shift 2
        done
        printf '}\n'
    } >"$file"
}

title() { printf '\n\033[1m%s\033[0m\n' "$*"; }
note() { printf '   %s\n' "$*"; }
indented() { sed 's/^/   /'; }

# wait_projected WHO…: until no turn of their own lanes waits for its vectors.
wait_projected() {
    local deadline=$((SECONDS + patience)) who waiting
    for who in "$@"; do
        while true; do
            # A lane that cannot count just now is asked again.
            waiting=$(as "$who" lanes --json | pick "next((l['counts'] or {}).get('pending_projection', '?') for l in answer['lanes'] if l['relation'] == 'own')")
            [[ $waiting != 0 ]] || break
            if ((SECONDS >= deadline)); then
                as "$who" lanes >&2
                die "$waiting turns still wait for their vectors after $patience s; see $demo/server.log"
            fi
            [[ ! -t 1 ]] || printf '\r   vectors are being made, %s to go   ' "$waiting"
            sleep 0.5
        done
    done
    [[ ! -t 1 ]] || printf '\r\033[K'
}

# --- the lanes' contents ----------------------------------------------------------------------------------------

turns_in() { grep -c . "$1"; }

save_all() {
    title 'Saving'
    note "bob's agent saves ten weeks of work into lane team/bob, Ada her own notes and the team's handbook"
    as agent save --file examples/conversation.jsonl --json >"$answers/saved-bob"
    as ada save --file examples/ada.jsonl --json >"$answers/saved-ada"
    as curator save --file examples/handbook.jsonl --json >"$answers/saved-handbook"
    wait_projected bob ada curator
}

mint_all() {
    mint bob team/bob user:bob
    mint agent team/bob sa:team/bobs-agent
    mint ada team/ada user:ada
    mint curator team/handbook user:ada
}

# --- the steps --------------------------------------------------------------------------------------------------

question='What is the deadline for the ledger cutover?'
handbook_question='Until what hour may we deploy to production on a Friday?'
secret=Kupferdrossel

saved() {
    as bob events --all --json | pages >"$answers/events-bob"
    as ada events --all --json | pages >"$answers/events-ada"
    as curator events --all --json | pages >"$answers/events-handbook"
    local who
    for who in bob ada handbook; do pages <"$answers/saved-$who" >"$answers/saved-$who.list"; done
    as bob lanes --json >"$answers/lanes-bob"
    as ada lanes --json >"$answers/lanes-ada"
    as curator lanes --json >"$answers/lanes-handbook"
    step 01-saved \
        bob_lines <(turns_in examples/conversation.jsonl) bob_saves "$answers/saved-bob.list" bob_events "$answers/events-bob" bob_lanes "$answers/lanes-bob" \
        ada_lines <(turns_in examples/ada.jsonl) ada_saves "$answers/saved-ada.list" ada_events "$answers/events-ada" ada_lanes "$answers/lanes-ada" \
        handbook_lines <(turns_in examples/handbook.jsonl) handbook_saves "$answers/saved-handbook.list" handbook_events "$answers/events-handbook" handbook_lanes "$answers/lanes-handbook"
    as bob lanes | indented
    as curator lanes | indented
}

recalled() {
    title "1. Bob asks: $question"
    as bob recall "$question" --lane team/bob --explain --json >"$answers/recall"
    as bob recall "$question" --lane team/bob --surface turns --role assistant --role user --explain --json >"$answers/recall-spoken"
    as bob recall "$question" --lane team/bob --top-k 2 | indented
    note 'The tools of this lane get no vectors, and the answer says so. Both decisions are found, each with its day.'
    step 02-recall question <(printf '"%s"' "$question") answer "$answers/recall" spoken "$answers/recall-spoken"
}

other_lane() {
    title "2. Ada asks her own lane the same"
    local whose=ada
    [[ $sabotage != scope ]] || whose=bob
    as $whose lanes --json >"$answers/other-lanes"
    as $whose recall "$question" --json >"$answers/other"
    as $whose recall "$question" --top-k 2 | indented
    step 03-other-lane question <(printf '"%s"' "$question") lanes "$answers/other-lanes" answer "$answers/other"
}

one_way() {
    title "3. Bob's lane reads the handbook: $handbook_question"
    as bob recall "$handbook_question" --explain --json >"$answers/bob-reads"
    as bob recall "$handbook_question" --top-k 2 | indented
    title '   The other way round: the curator of the handbook asks what Bob decided'
    as curator lanes --json >"$answers/curator-lanes"
    as curator recall "$question" --top-k 50 --json >"$answers/curator-asks"
    as curator recall "$question" --lane team/bob --json >"$answers/curator-refused" || true
    note "lanes that were searched: $(pick "', '.join(l['lane'] for l in answer['coverage']['lanes'])" <"$answers/curator-asks")"
    note 'and with --lane team/bob:'
    as curator recall "$question" --lane team/bob 2>&1 | indented || true
    step 04-one-way question <(printf '"%s"' "$question") handbook_question <(printf '"%s"' "$handbook_question") \
        bob "$answers/bob-reads" curator_lanes "$answers/curator-lanes" curator "$answers/curator-asks" curator_refused "$answers/curator-refused"
}

# append KEY: the turn of the retry, as any client would send it.
append() {
    curl -sS --noproxy '*' --max-time 60 -H @"$tokens/agent.header" -H 'Content-Type: application/json' \
        -H "Idempotency-Key: $1" --data-binary @"$answers/turn.json" "$url/v1/lanes/team/bob/events"
}

retried() {
    title '4. A save is sent, its answer gets lost, and the client sends it again'
    local key=demo-retry-1
    printf '%s' '{"session":"2026-11-25","turns":[{"role":"assistant","at":"2026-11-25T09:10:00+01:00","text":"Handover note for December: the change freeze starts on the 18th, and v2.6 waits until January."}]}' >"$answers/turn.json"
    as bob events --all --json | pages >"$answers/retry-before"
    append "$key" >"$answers/retry-first"
    as bob events --all --json | pages >"$answers/retry-between"
    [[ $sabotage != idem ]] || key=demo-retry-2
    append "$key" >"$answers/retry-second"
    as bob events --all --json | pages >"$answers/retry-after"
    local when
    for when in before between after; do
        note "events $when: $(pick "sum(len(page['events']) for page in answer)" <"$answers/retry-$when")"
    done
    note "the first answer names event  $(pick "answer['events'][0]['id']" <"$answers/retry-first")"
    note "the second answer names event $(pick "answer['events'][0]['id']" <"$answers/retry-second")"
    step 05-retry before "$answers/retry-before" first "$answers/retry-first" between "$answers/retry-between" \
        retry "$answers/retry-second" after "$answers/retry-after"
}

# How often the word stands in any byte of what the server keeps or logs, in whatever case.
found_in_files() { { LC_ALL=C grep -raio -- "$secret" "$data" "$demo/server.log" || true; } | wc -l; }

forgotten() {
    title "5. Jonas asked that a customer's code name be forgotten"
    wait_projected bob
    as bob recall "$secret" --json >"$answers/forget-before"
    local before after id
    before=$(found_in_files)
    id=$(pick "next(hit['id'] for hit in answer['hits'] if '$secret' in hit['text'])" <"$answers/forget-before")
    note "before: recall finds it in event $id; the word stands $before times in the lanes' files"
    printf 'null' >"$answers/forget"
    if [[ $sabotage != forget ]]; then
        as bob forget --event "$id" --reason customer_request --yes --json >"$answers/forget"
        pick "'receipt: seq {seq} by {by}, reason {reason}; {count} event; {neighbours_rewritten} following turns made again without it'.format(**answer['receipt'])" <"$answers/forget" | indented
        pick "'\n'.join(f'  {surface}: {state}' for surface, state in answer['receipt']['surfaces'].items())" <"$answers/forget" | indented
    fi
    # The turns after it get new vectors, made without it.
    wait_projected bob
    as bob recall "$secret" --top-k 50 --explain --json >"$answers/forget-after"
    as bob events --all --json | pages >"$answers/forget-events"
    after=$(found_in_files)
    note "after: $(pick "sum('$secret'.lower() in hit['text'].lower() for hit in answer['hits'])" <"$answers/forget-after") hits hold the word; it stands $after times in the lanes' files"
    step 06-forget word <(printf '"%s"' "$secret") before "$answers/forget-before" files_before <(printf '%d' "$before") \
        forget "$answers/forget" after "$answers/forget-after" events "$answers/forget-events" files_after <(printf '%d' "$after")
}

# verify_file NAME FILE: the program's report and its exit code, without a server.
verify_file() {
    local code=0
    "$lanekeeper" verify "$2" --json >"$answers/verify-$1" || code=$?
    printf '%d' "$code" >"$answers/verify-$1.code"
    "$lanekeeper" verify "$2" | indented || true
}

chained() {
    title '6. The server is stopped, and in a copy of the log somebody makes October 16 an October 15'
    stop_server
    local lane copy=$demo/copy seq
    lane=$(echo "$data"/lanes/team.bob.*)
    mkdir "$copy"
    cp "$lane"/lane.db* "$copy"/
    seq=$(pick "next(event['seq'] for page in answer for event in page['events'] if 'moves to Friday, October 16' in (event['text'] or ''))" <"$answers/forget-events")
    [[ $sabotage == chain ]] || note "one byte: $(python3 examples/flip_byte.py "$copy/lane.db" "$seq" 'Friday, October 16' 'Friday, October 15')"
    { cmp -l "$lane/lane.db" "$copy/lane.db" || true; } | wc -l >"$answers/differing"
    note 'the copy:'
    verify_file copy "$copy/lane.db"
    note 'the original:'
    verify_file original "$lane"
    step 07-chain flipped_seq <(printf '%d' "$seq") differing_bytes "$answers/differing" \
        copy "$answers/verify-copy" copy_exit "$answers/verify-copy.code" \
        original "$answers/verify-original" original_exit "$answers/verify-original.code"
}

# --- the two ways to run ----------------------------------------------------------------------------------------

"$lanekeeper" model path >/dev/null 2>&1 || "$lanekeeper" model fetch

if [[ $mode == show ]]; then
    # Only ever what an earlier demo left.
    rm -rf -- "$data" "$tokens" "$answers" "$steps" "$demo/copy"
    mkdir -p "$demo" && mkdir "$tokens" "$answers" "$steps"
    start_server
    mint_all
    save_all
    saved
    recalled
    other_lane
    one_way
    retried
    forgotten
    chained
    title "The program's answers are in $steps/; lanekeeper-demo-check judges them."
    exit 0
fi

mkdir -p "$demo" "$tokens" "$answers"
# Memory stays from run to run, so the conversation is saved once; a save that was broken off is repeated.
[[ -d $data ]] || rm -f "$demo/saved"
start_server
mint_all
[[ -e $demo/saved ]] || save_all
: >"$demo/saved"
title "Lanekeeper serves three lanes at $url; Ctrl-C stops it. The tokens in $tokens/ hold for a day."
cat <<TRY

   curl -s -H @$tokens/bob.header -H 'Content-Type: application/json' \\
        -d '{"query": "$question", "top_k": 3}' $url/v1/recall

   $lanekeeper recall --url $url --token-file $tokens/bob '$question'
   $lanekeeper lanes --url $url --token-file $tokens/ada

TRY
wait "$server"
