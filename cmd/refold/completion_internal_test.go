// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"c":                                        "cluster completion console copy",
		"cluster le":                               "lease-bucket leave",
		"help cluster le":                          "lease-bucket leave",
		"cluster --nats nats://h:1 le":             "lease-bucket leave",
		"cluster --nats=nats://h:1 le":             "lease-bucket leave",
		"cluster --allow-plaintext le":             "lease-bucket leave",
		"cluster --nats ":                          "",
		"cluster leave --wa":                       "--wait --wait-timeout",
		"cluster leave --wait b --n":               "--nats --nkey-file",
		"cluster nats-permissions ":                "node operator",
		"cluster nats-permissions node ":           "",
		"demo ":                                    "cluster", // the command of worker processes is hidden
		"demo cluster --strategy k":                "keep-majority keep-oldest",
		"shards --js":                              "--json", // of the default command
		"completion ":                              "bash fish zsh",
		"new shop --store ":                        "leveldb postgres",
		"events x --f":                             "--from",
		"nonsense --ver":                           "--version",
		"projections rebuild totals --cluster x -": "--allow-plaintext --ask --ca --cert --cluster --credentials --help --key --nats --nkey-file --operator --server-name --timeout --token-file --version --yes",
	} {
		var out, stderr strings.Builder
		p := program()
		p.Stdout, p.Stderr = &out, &stderr
		status := p.Run(t.Context(), append([]string{"completion", "words", "--"}, strings.Split(words, " ")...))
		if got := strings.Join(strings.Fields(out.String()), " "); status != 0 || got != want {
			t.Errorf("refold %s: status %d, %q, %s; want %q", words, status, got, &stderr, want)
		}
	}
}

// bash runs the script that "refold completion bash" prints.
func TestCompletionInBash(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, err := os.Executable()
	if err == nil {
		err = os.Symlink(program, filepath.Join(dir, "refold"))
	}
	if err != nil {
		t.Fatal(err)
	}
	script := `source <(refold completion bash)
COMP_WORDS=(refold cluster le) COMP_CWORD=2
_refold
echo "${COMPREPLY[@]}"
COMP_WORDS=(refold cluster nats-permissions "") COMP_CWORD=3
_refold
echo "${COMPREPLY[@]}"
complete -p refold`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if want := "lease-bucket leave\nnode operator\ncomplete -o default -F _refold refold\n"; err != nil || string(out) != want {
		t.Errorf("bash: %v, %s; want %q", err, out, want)
	}
}
