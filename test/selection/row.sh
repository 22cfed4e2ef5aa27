# SPDX-License-Identifier: BSD-3-Clause
# What the tests of selection share: $open_as is the program that opens, $table a file for the lines of the table, if any.

rows=0
# row CONDITION NAME PATTERN COMMAND... - opening NAME with COMMAND in front: PATTERN is in the error's text or hint, and the
# name that was asked for as well; or, if PATTERN is "opens PROVIDER", that is what is opened.
row() {
	condition=$1 name=$2 want=$3
	shift 3
	timeout 60 "$@" "$open_as" "$name" ${address:+"$address"} >"$tmp/line" 2>"$tmp/stderr"
	rc=$?
	said=$(sed "s|$tmp/tree|BUILD|g" "$tmp/line")
	[ "$address" != taken ] || said=$(echo "$said" | sed 's/127\.0\.0\.1:[0-9]*/127.0.0.1:PORT/')
	rows=$((rows + 1))
	good=no
	case $rc:$want in
	0:"opens "*) [ "$said" != "opened|${want#opens }" ] || good=yes ;;
	1:"opens "*) ;;
	1:*) ! echo "$said" | grep -qi -e "$want" || ! { [ -n "$address" ] || echo "$said" | grep -qF "${name%%:*}"; } || good=yes ;;
	esac
	if [ $good = yes ]; then
		echo "ok: $name, $condition: $(echo "$said" | cut -d'|' -f1,4 | tr '|' ' ' | cut -c1-150)"
	else
		echo "FAILED: $name, $condition: wanted \"$want\", exit status $rc, and: $said"
		cat "$tmp/stderr"
		failed=1
	fi
	[ -z "$table" ] || echo "$said" | awk -F'|' -v c="$condition" -v n="$name" '{
		if ($1 == "opened") print "| " c " | " n " | opened " $2 " | |"
		else print "| " c " | " n " | " $1 ": " $4 " | " $5 " |" }' >>"$tmp/rows"
}
address=

# rows_can_fail - what is not as wanted is seen.
rows_can_fail() {
	before=$failed
	{
		row "planted" loop "opens ucx:tcp" env
		row "planted" nonesuch "the moon" env
	} >"$tmp/planted"
	[ $failed = 1 ] && [ "$(grep -c '^FAILED: ' "$tmp/planted")" = 2 ] && failed=$before && echo "ok: what is not as wanted is seen" ||
		{ echo "FAILED: what is not as wanted is not seen"; failed=1; }
}
