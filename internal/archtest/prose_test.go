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
	"regexp"
	"strings"
	"testing"
)

// wording limits the use of words that make prose hard to read: relative pronouns without an
// antecedent, things that speak or think, and phrases that are rare in technical English. The
// limits are hits per 1,000 lines. They are above those of well-kept Go code bases.
var wording = []struct {
	name  string
	most  float64
	words *regexp.Regexp
}{
	{"who", 4, regexp.MustCompile(`(?i)\bwho(m|ever)?\b`)},
	{"what", 10, regexp.MustCompile(`(?i)\bwhat(ever)?\b`)},
	{"say, tell, know", 8, regexp.MustCompile(`(?i)\b(say|says|said|tells?|told|knows?|knew)\b`)},
	{"go on, is there, come", 4, regexp.MustCompile(`(?i)\b(goes? on|went on|is there|are there|comes? back|comes in|of its own|by itself)\b`)},
	{"behind, anew, besides", 2, regexp.MustCompile(`(?i)\b(behind|anew|besides|all the same|in place of|for ever|meanwhile)\b`)},
	{"nobody, somebody", 2, regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|no one)\b`)},
}

const messageLimit = 10

var (
	comment    = regexp.MustCompile(`^\s*//`)
	directive  = regexp.MustCompile(`//(go:|nolint| Copyright| SPDX)`)
	letters    = regexp.MustCompile(`[a-z]`)
	message    = regexp.MustCompile(`(errors\.New|fmt\.Errorf|\.(Debug|Info|Warn|Error|Log|LogAttrs|ErrorContext|WarnContext|InfoContext)\(|help:")`)
	inMessages = regexp.MustCompile(`(?i)\b(who|whom|what|whatever|nobody|somebody|anew|besides|behind|said|told|for ever|goes on|go on)\b`)
)

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
			case isPage && letters.MatchString(line) && !strings.HasPrefix(line, "```"),
				isGo && comment.MatchString(line) && !directive.MatchString(line):
				prose = append(prose, found)
			case isGo && message.MatchString(line):
				messages = append(messages, found)
			}
		}
	}
	for _, w := range wording {
		checkWords(t, w.name, w.most, w.words, prose)
	}
	checkWords(t, "messages", messageLimit, inMessages, messages)
}

// checkWords compares the number of hits per 1,000 lines with a limit.
func checkWords(t *testing.T, name string, most float64, words *regexp.Regexp, lines []string) {
	t.Helper()
	hits := 0
	var found []string
	for _, line := range lines {
		_, text, _ := strings.Cut(line, ": ")
		if n := len(words.FindAllString(text, -1)); n > 0 {
			hits += n
			found = append(found, line)
		}
	}
	if rate := 1000 * float64(hits) / float64(max(1, len(lines))); rate > most {
		t.Errorf("%s: %.1f per 1,000 lines, at most %v are allowed; for example\n%s", name, rate, most, strings.Join(found[:min(20, len(found))], "\n"))
	}
}

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
