// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const maxNameLen = 255

// manifest is what stands beside a payload: name[@version][+format]. Version 1
// and the msgpack format are left out.
type manifest struct {
	name    string
	version int
	format  string
}

func (m manifest) String() string {
	s := m.name
	if m.version != 1 {
		s += "@" + strconv.Itoa(m.version)
	}
	if m.format != msgpackName {
		s += "+" + m.format
	}
	return s
}

// parseManifest reads what String wrote, and nothing else.
func parseManifest(s string) (manifest, bool) {
	m := manifest{name: s, version: 1, format: msgpackName}
	if name, format, found := strings.Cut(m.name, "+"); found {
		m.name, m.format = name, format
	}
	if name, version, found := strings.Cut(m.name, "@"); found {
		n, err := strconv.Atoi(version)
		if err != nil {
			return manifest{}, false
		}
		m.name, m.version = name, n
	}
	if m.version < 1 || checkName(m.name) != nil || checkName(m.format) != nil || m.String() != s {
		return manifest{}, false
	}
	return m, true
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a name is empty")
	case len(name) > maxNameLen:
		return fmt.Errorf("name %.20q... has %d bytes, more than %d", name, len(name), maxNameLen)
	case !utf8.ValidString(name):
		return fmt.Errorf("name %q is not valid UTF-8", name)
	}
	for _, c := range name {
		if strings.ContainsRune("@+|", c) || unicode.IsSpace(c) || !unicode.IsPrint(c) {
			return fmt.Errorf("name %q has the character %q", name, c)
		}
	}
	return nil
}
