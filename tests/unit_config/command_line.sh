#!/bin/sh
# The command line: exit statuses, where messages go, and what they say. usage: command_line.sh LARDER
larder=$1
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0

# expect STATUS STREAM TEXT ARGS...: STREAM is out or err, and the other one stays empty.
expect() {
    status=$1 stream=$2 text=$3
    shift 3
    env -i PATH="$PATH" ${vars-} "$larder" "$@" >out 2>err </dev/null
    got=$?
    other=out
    [ "$stream" = out ] && other=err
    if [ $got -ne "$status" ] || ! grep -qF -e "$text" "$stream" || [ -s $other ]; then
        echo "larder $*: status $got, not $status, or '$text' is not in std$stream:"
        cat out err
        failed=1
    fi
}

printf 'upstreams:\n  - url: http://127.0.0.1:9\n' >good.yaml
printf 'upstreams:\n  - url: http://127.0.0.1:9\nlisetn: 127.0.0.1:1\n' >bad.yaml

expect 0 out 'larder ' version
expect 0 out 'larder ' --version
expect 0 out 'larder serve' help
expect 0 out 'larder serve' -h
expect 2 err 'larder serve'
expect 2 err "did you mean 'serve'?" srve
expect 2 err 'larder help' qqqqqqqqqqqqqqqqqqqq
expect 0 out 'LR001' rules
expect 2 err "no rule 'x'; " rules x
expect 2 err "did you mean 'volatile_clock'?" rules volatile_clok
expect 2 err 'usage: larder rules [RULE]' rules LR001 LR002
expect 0 out 'LR001 volatile_clock, on by default' rules LR001
expect 0 out 'docs/rules/LR003.md' rules tool_order
expect 0 out 'edition 2026.12' fingerprint
expect 0 out '"LR001"' fingerprint --format json
expect 0 out 'fingerprint new' fingerprint --edition 2026.11
expect 2 err 'acts as 2026.12' fingerprint --edition 2031.01
expect 2 err 'text or json' fingerprint --format xml
expect 2 err 'unknown option' fingerprint --frmat
expect 2 err 'needs a value' fingerprint --edition
expect 0 out 'valid' check -c good.yaml --edition 2026.12
expect 1 err 'is larder running' upstreams --admin 127.0.0.1:1
expect 2 err 'is no HOST:PORT' upstreams --admin nowhere
expect 2 err 'unknown option' upstreams --jsn
expect 2 err 'a value is missing' upstreams --admin
expect 1 err 'is larder running' stats --store . --admin 127.0.0.1:1
expect 2 err 'is no HOST:PORT' stats --store . --admin nowhere
expect 2 err 'needs a value' stats --store . --admin
expect 2 err 'unknown option' tail --store . --admin 127.0.0.1:1
expect 3 err 'would miss once' check -c good.yaml --edition 2026.11
expect 3 err 'does not know that edition' check -c good.yaml --edition 2031.01
for command in serve check config stats tail export upstreams baseline explain fingerprint inspect rules version help; do
    for flag in --help -h; do expect 0 out "usage: larder $command" $command $flag; done
    expect 0 out "usage: larder $command" help $command
done
expect 0 out 'usage: larder check' config check --help
expect 0 out 'usage: larder check' check -c absent.yaml --help
expect 0 out 'config docs --markdown' config docs --help
expect 2 err "no command 'nope'" help nope
expect 2 err "did you mean 'serve'?" help srve
expect 2 err 'usage: larder help' help serve check
expect 0 out 'is valid: 1 listener(s), 1 upstream(s)' check -c good.yaml
expect 0 out 'is valid' config check -c good.yaml
expect 0 out 'is valid' config check --config=good.yaml --limits-fields=9
expect 0 out 'is valid' check --upstream http://127.0.0.1:9
expect 3 err "bad.yaml:3:1: unknown name 'lisetn'; did you mean 'listen'?" check -c bad.yaml
expect 3 err 'absent.yaml' check -c absent.yaml
expect 3 err 'no upstream' check
expect 3 err 'limits-fields: is out of range' check -c good.yaml --limits-fields 1
expect 2 err 'did you mean --upstream?' check --upstrem http://x
expect 2 err 'did you mean --upstream?' check --upstrem
expect 2 err '--nope: no such option' serve --nope
expect 2 err '--nope: no such option' serve --nope --config good.yaml
expect 2 err '--nope: no such option' serve --nope=1 -c absent.yaml
expect 2 err '--confg: no such option; did you mean --config?' serve --confg good.yaml
expect 2 err 'a value is missing' check -c
expect 2 err 'a value is missing behind: --limits-fields' check -c good.yaml --limits-fields
expect 2 err "unexpected argument 'good.yaml'; a configuration file is given as -c good.yaml" check good.yaml
expect 2 err "given as -c good.yaml" serve good.yaml
expect 2 err 'options begin with --' check -x
expect 2 err 'unexpected argument' check --
expect 3 err "bad.yaml:3:1" serve -c bad.yaml
expect 2 err 'usage: larder config' config
expect 2 err 'usage: larder config' config docs
expect 0 out '# Configuration' config docs --markdown
expect 0 out 'upstreams:' config docs --sample
expect 0 out '--limits-head-bytes' serve --help
vars=LARDER_CANON_MODE=sometimes
expect 3 err 'LARDER_CANON_MODE: must be off, report or on' check -c good.yaml
vars=LARDER_UPSTREAM=http://127.0.0.1:9
expect 0 out 'is valid' check
vars=
env -i "$larder" config docs --sample >/dev/full 2>err
[ $? -eq 1 ] || { echo 'a full disk is not noticed'; failed=1; }

[ $failed -eq 0 ] && echo 'the command line is as described'
exit $failed
