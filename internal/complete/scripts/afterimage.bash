# bash completion of afterimage: source it, or put it into /etc/bash_completion.d or
# ~/.local/share/bash-completion/completions/afterimage.
_afterimage() {
	local words=() i word line cut
	# bash takes words apart at = and :, which the program takes as part of one.
	for ((i = 1; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if ((${#words[@]})) && [[ $word == [=:]* || ${COMP_WORDS[i - 1]} == [=:] ]]; then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
	done
	word=${words[${#words[@]} - 1]}
	cut=${word%"${word##*[=:]}"} # what is there already, of the part that bash replaces
	COMPREPLY=()
	while IFS= read -r line; do
		case $line in
		:file) compopt -o default ;;
		:dir) compopt -o dirnames ;;
		:*) ;;
		*)
			line=${line%%$'\t'*}
			COMPREPLY+=("${line#"$cut"}")
			;;
		esac
	done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
}
complete -F _afterimage afterimage
