// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import "regexp"

// secrets match passwords: in a URL after the user name, and as the value of a keyword or parameter.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(\w://[^:/@\s"']*:)(\S*)(@)`),
	regexp.MustCompile(`((?i:password)=)('(?:[^'\\]|\\.)*'|[^\s&'"]+)()`),
}

// Redact returns text with passwords replaced: those in addresses, and those after "password=".
// Error messages quote arguments, and an argument in the wrong place may be an address.
func Redact(text string) string {
	for _, secret := range secrets {
		text = secret.ReplaceAllString(text, "${1}xxxxx${3}")
	}
	return text
}
