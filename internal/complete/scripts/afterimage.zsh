#compdef afterimage
# zsh completion of afterimage: source it behind compinit, or put it into a folder of $fpath as _afterimage.
_afterimage() {
	local line files=none
	local -a found
	for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
		:*) files=${line#:} ;;
		*$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		?*) found+=("${line//:/\\:}") ;;
		esac
	done
	(( $#found )) && _describe -o afterimage found
	case $files in
	file) _files ;;
	dir) _files -/ ;;
	esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
	_afterimage "$@"
else
	compdef _afterimage afterimage
fi
