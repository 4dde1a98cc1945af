// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// Permissions are the subjects that a NATS user may use.
type Permissions struct{ Publish, Subscribe []string }

// NodePermissions returns what the node with a name needs in a cluster, and no
// more: it hears what is for it, and speaks for itself only. That is what makes
// the sender of a message certain. Leases need [LeasePermissions] besides.
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

// LeasePermissions returns what a node needs for the leases of a cluster with a
// time-out: see [OpenLeases]. All nodes share a bucket, so they can take each
// other's leases away.
func LeasePermissions(cluster string, timeout time.Duration) (Permissions, error) {
	if err := identity.CheckCluster(cluster); err != nil {
		return Permissions{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	name := bucket(cluster, timeout)
	stream := "KV_" + name
	return Permissions{
		Publish: []string{
			"$KV." + name + ".>",
			"$JS.API.INFO", "$JS.API.STREAM.INFO." + stream, "$JS.API.STREAM.CREATE." + stream,
			"$JS.API.STREAM.MSG.GET." + stream, "$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>",
		},
		Subscribe: []string{"_INBOX.>"},
	}, nil
}

// And returns these permissions and others.
func (p Permissions) And(others Permissions) Permissions {
	return Permissions{Publish: slices.Concat(p.Publish, others.Publish), Subscribe: slices.Concat(p.Subscribe, others.Subscribe)}
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
