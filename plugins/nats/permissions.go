// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"fmt"
	"strings"

	"github.com/refold-io/refold/identity"
)

// Permissions are the subjects that a NATS user may use.
type Permissions struct{ Publish, Subscribe []string }

// NodePermissions returns what the node with a name needs in a cluster, and no
// more: it hears what is for it, and speaks for itself only. That is what makes
// the sender of a message certain. It includes the leases of [OpenLeases].
func NodePermissions(cluster, name string) (Permissions, error) {
	if err := identity.CheckCluster(cluster); err != nil {
		return Permissions{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err := identity.CheckName(name); err != nil {
		return Permissions{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s := newSubjects(cluster, identity.Node{Name: name})
	var p Permissions
	for _, lane := range []string{"control", "data", "bulk"} {
		p.Publish = append(p.Publish, s.prefix+lane+".*.*."+s.from)
		p.Subscribe = append(p.Subscribe, s.prefix+lane+"."+s.from+".*.*")
	}
	p.Publish = append(p.Publish, s.prefix+"join.*."+s.from)
	p.Subscribe = append(p.Subscribe, s.prefix+"join."+s.from+".*", s.prefix+"admin."+s.from+".*")
	return p, nil
}

// String returns the permissions as they stand in a server's configuration.
func (p Permissions) String() string {
	var b strings.Builder
	list := func(what string, subjects []string) {
		fmt.Fprintf(&b, "  %s: {\n    allow: [\n", what)
		for _, subject := range subjects {
			fmt.Fprintf(&b, "      %q\n", subject)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("permissions: {\n")
	list("publish", p.Publish)
	list("subscribe", p.Subscribe)
	b.WriteString("}\n")
	return b.String()
}
