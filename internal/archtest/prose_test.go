// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package archtest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// wording limits the use of words that make prose hard to read: relative pronouns without an
// antecedent, things that speak or think, and phrases that are rare in technical English. The
// limits are hits per 1,000 lines. They are above those of well-kept Go code bases.
var wording = []struct {
	name    string
	most    float64
	phrases []string
}{
	{"who", 4, []string{"who", "whom", "whoever"}},
	{"what", 10, []string{"what", "whatever"}},
	{"say, tell, know", 8, []string{"say", "says", "said", "tell", "tells", "told", "know", "knows", "knew"}},
	{"go on, is there, come", 4, []string{"go on", "goes on", "went on", "is there", "are there", "come back", "comes back", "comes in", "of its own", "by itself"}},
	{"behind, anew, besides", 2, []string{"behind", "anew", "besides", "all the same", "in place of", "for ever", "meanwhile"}},
	{"nobody, somebody", 2, []string{"nobody", "somebody", "anybody", "no one"}},
}

// inMessages are the phrases that are rare in good error texts and log lines.
var inMessages = []string{
	"who", "whom", "what", "whatever", "nobody", "somebody", "anew", "besides", "behind", "said", "told", "for ever", "goes on", "go on",
}

const messageLimit = 10

// calls are those whose texts are messages.
var calls = []string{
	"errors.New", "fmt.Errorf", `help:"`,
	".Debug(", ".Info(", ".Warn(", ".Error(", ".Log(", ".LogAttrs(", ".ErrorContext(", ".WarnContext(", ".InfoContext(",
}

// isComment reports whether a line is prose of a Go file: a comment that is not a directive.
func isComment(line string) bool {
	text, found := strings.CutPrefix(strings.TrimSpace(line), "//")
	return found && !slices.ContainsFunc([]string{"go:", "nolint", " Copyright", " SPDX"}, func(p string) bool { return strings.HasPrefix(text, p) })
}

func isMessage(line string) bool {
	return slices.ContainsFunc(calls, func(call string) bool { return strings.Contains(line, call) })
}

// The test counts whole-line comments of Go files without tests, and Markdown.
func TestProseIsPlain(t *testing.T) {
	t.Parallel()
	var prose, messages []string
	for _, name := range trackedFiles(t) {
		isGo := strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go")
		isPage := strings.HasSuffix(name, ".md")
		if !isGo && !isPage {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		for lines, nr := bufio.NewScanner(bytes.NewReader(text)), 1; lines.Scan(); nr++ {
			line := lines.Text()
			found := fmt.Sprintf("%s:%d: %s", name, nr, strings.TrimSpace(line))
			switch {
			case isPage && strings.ContainsFunc(line, unicode.IsLower) && !strings.HasPrefix(line, "```"), isGo && isComment(line):
				prose = append(prose, found)
			case isGo && isMessage(line):
				messages = append(messages, found)
			}
		}
	}
	for _, w := range wording {
		checkWords(t, w.name, w.most, w.phrases, prose)
	}
	checkWords(t, "messages", messageLimit, inMessages, messages)
}

// The servers of http.ListenAndServe have no time-outs, so that no page may recommend them.
func TestPagesServeWithTimeouts(t *testing.T) {
	t.Parallel()
	for _, name := range trackedFiles(t) {
		if !strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, "doc.go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "http.ListenAndServe") {
			t.Errorf("%s recommends http.ListenAndServe, which has no time-outs; use an http.Server that sets them", name)
		}
	}
}

// checkWords compares the number of hits per 1,000 lines with a limit.
func checkWords(t *testing.T, name string, most float64, phrases, lines []string) {
	t.Helper()
	hits := 0
	var found, spaced []string
	for _, phrase := range phrases {
		spaced = append(spaced, " "+strings.ReplaceAll(phrase, " ", "  ")+" ")
	}
	for _, line := range lines {
		_, text, _ := strings.Cut(line, ": ")
		// Two spaces between words, so that adjacent hits do not share one.
		text = " " + strings.Join(strings.FieldsFunc(strings.ToLower(text), notLetter), "  ") + " "
		before := hits
		for _, phrase := range spaced {
			hits += strings.Count(text, phrase)
		}
		if hits > before {
			found = append(found, line)
		}
	}
	if rate := 1000 * float64(hits) / float64(max(1, len(lines))); rate > most {
		t.Errorf("%s: %.1f per 1,000 lines, at most %v are allowed; for example\n%s", name, rate, most, strings.Join(found[:min(20, len(found))], "\n"))
	}
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }

// trackedFiles returns the files of the repository.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}
