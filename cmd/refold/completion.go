// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/refold-io/refold/cmd/refold/operator"
)

type completionCommand struct {
	Bash  completionScriptCommand `cmd:"" help:"Print the script for bash. In ~/.bashrc: source <(refold completion bash)"`
	Zsh   completionScriptCommand `cmd:"" help:"Print the script for zsh. In ~/.zshrc, after compinit: source <(refold completion zsh)"`
	Fish  completionScriptCommand `cmd:"" help:"Print the script for fish. In ~/.config/fish/config.fish: refold completion fish | source"`
	Words completionWordsCommand  `cmd:"" hidden:""`
}

// completionScriptCommand prints a script that completes words with completionWordsCommand, and file
// names if there is none.
type completionScriptCommand struct{}

func (c *completionScriptCommand) Run(selected *kong.Context, env *operator.Env) error {
	scripts := map[string]string{
		"bash": `_refold() {
	local IFS=$'\n'
	COMPREPLY=($(refold completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _refold refold
`,
		"zsh": `_refold() {
	local -a found
	found=(${(f)"$(refold completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( $#found )); then compadd -a found; else _files; fi
}
compdef _refold refold
`,
		"fish": `function __refold_words
	refold completion words -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null
end
complete -c refold -n '__refold_words | string length -q' -f -a '(__refold_words)'
`,
	}
	_, err := fmt.Fprint(env.Stdout, scripts[selected.Selected().Name])
	return err
}

// completionWordsCommand prints the words that can replace the last one.
type completionWordsCommand struct {
	Words []string `arg:"" optional:""`
}

func (c *completionWordsCommand) Run(selected *kong.Context, env *operator.Env) error {
	for _, word := range completions(selected.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(env.Stdout, word); err != nil {
			return err
		}
	}
	return nil
}

// completions returns the commands, flags and values that begin with the last word and may follow the
// words before it.
func completions(node *kong.Node, words []string) (found []string) {
	if len(words) > 0 && words[0] == "help" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	last := len(words) - 1
	var value *kong.Value // of the flag that is the previous word
	arguments := 0
	for _, word := range words[:last] {
		name, isFlag := strings.CutPrefix(word, "--")
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word })
		switch {
		case value != nil:
			value = nil
		case isFlag:
			value = valueOf(node, name)
		case child >= 0:
			node, arguments = node.Children[child], 0
		default:
			arguments++
		}
	}
	switch {
	case value != nil:
		found = enumOf(value)
	case strings.HasPrefix(words[last], "-"):
		for _, f := range flagsOf(node) {
			found = append(found, "--"+f.Name)
		}
	default:
		for _, n := range node.Children {
			if !n.Hidden {
				found = append(found, n.Name)
			}
		}
		if arguments < len(node.Positional) {
			found = append(found, enumOf(node.Positional[arguments])...)
		}
	}
	found = slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, words[last]) })
	slices.Sort(found)
	return found
}

// flagsOf returns the flags of a command, of its default command and of the commands that contain it.
func flagsOf(node *kong.Node) (flags []*kong.Flag) {
	groups := node.AllFlags(true)
	if node.DefaultCmd != nil {
		groups = append(groups, node.DefaultCmd.Flags)
	}
	return slices.Concat(groups...)
}

// valueOf returns the value of a flag that takes the next word as its value, nil for other flags.
func valueOf(node *kong.Node, name string) *kong.Value {
	for _, f := range flagsOf(node) {
		if f.Name == name && !f.IsBool() {
			return f.Value
		}
	}
	return nil
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}
