// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package docblocks_test

import (
	"regexp"
	"strings"
)

// volatile are the parts of an output that differ from run to run.
var volatile = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b`), "TIME"},
	{regexp.MustCompile(`\(cached\)|\b(\d+h)?(\d+m)?\d+(\.\d+)?(ns|µs|us|ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{8,}\b`), "ID"},
	{regexp.MustCompile(`:\d{5}\b`), ":PORT"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(`(?m) $`), ""},
	{regexp.MustCompile(`(?m)^go: downloading .*\n`), ""},
}

func withoutVolatile(output string) string {
	for _, v := range volatile {
		output = v.pattern.ReplaceAllString(output, v.with)
	}
	return strings.Trim(output, "\n") + "\n"
}

// sameOutput reports whether an output is as a page shows it.
func sameOutput(shown, output string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(withoutVolatile(shown)) {
		if line == "…\n" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*"))
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(withoutVolatile(output))
}
