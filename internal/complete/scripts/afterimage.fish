# fish completion of afterimage: source it, or put it into ~/.config/fish/completions/afterimage.fish.
function __afterimage_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
        switch $line
            case ':file'
                __fish_complete_path "$word"
            case ':dir'
                __fish_complete_directories "$word"
            case ':*'
            case '*'
                echo $line
        end
    end
end
complete -c afterimage -f -a '(__afterimage_complete)'
