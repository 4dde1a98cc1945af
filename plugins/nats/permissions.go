// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/refold-io/refold/identity"
)

// Permissions are the subjects that a NATS user may use.
type Permissions struct {
	Publish, Subscribe []string
	// Responses allows the user to reply to each request, on any reply subject.
	Responses bool
}

// NodePermissions returns the permissions of the node with this name. The node receives only its
// own messages and sends only as itself, so the sender of a message is certain. Leases also need
// [LeasePermissions].
func NodePermissions(cluster, name string) (Permissions, error) {
	if err := checkNames(cluster, name); err != nil {
		return Permissions{}, err
	}
	s := newSubjects(cluster, identity.Node{Name: name})
	var p Permissions
	for _, lane := range []string{"control", "data", "bulk"} {
		p.Publish = append(p.Publish, s.prefix+lane+".*.*."+s.from)
		p.Subscribe = append(p.Subscribe, s.prefix+lane+"."+s.from+".*.*")
	}
	p.Publish = append(p.Publish, s.prefix+"join.*."+s.from)
	named, any := s.admin()
	p.Subscribe = append(p.Subscribe, s.join(), named, any)
	p.Responses = true // to operators
	return p, nil
}

// OperatorPermissions returns the permissions to send requests to the nodes of a cluster: see
// [ConnectOperator]. Each node decides which requests it executes.
func OperatorPermissions(cluster, operator string) (Permissions, error) {
	if err := checkNames(cluster, operator); err != nil {
		return Permissions{}, err
	}
	return Permissions{
		Publish:   []string{newSubjects(cluster, identity.Node{}).prefix + "admin.*." + token(operator)},
		Subscribe: []string{inbox(cluster, inboxOperator, operator) + ".>"},
	}, nil
}

// LeasePermissions returns the permissions for the leases of a cluster with a time-out: see
// [OpenLeases]. All nodes share a bucket, so a node can take the leases of another one. Only the
// node itself can read the server's replies.
func LeasePermissions(cluster, name string, timeout time.Duration) (Permissions, error) {
	if err := checkNames(cluster, name); err != nil {
		return Permissions{}, err
	}
	kv := bucket(cluster, timeout)
	stream := "KV_" + kv
	return Permissions{
		Publish: []string{
			"$KV." + kv + ".>",
			"$JS.API.INFO", "$JS.API.STREAM.INFO." + stream, "$JS.API.STREAM.CREATE." + stream,
			"$JS.API.STREAM.MSG.GET." + stream, "$JS.API.DIRECT.GET." + stream, "$JS.API.DIRECT.GET." + stream + ".>",
		},
		Subscribe: []string{inbox(cluster, inboxLease, name) + ".>"},
	}, nil
}

func checkNames(cluster, name string) error {
	if err := cmp.Or(identity.CheckCluster(cluster), identity.CheckName(name)); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// And returns the union of these and other permissions.
func (p Permissions) And(others Permissions) Permissions {
	return Permissions{
		Publish: slices.Concat(p.Publish, others.Publish), Subscribe: slices.Concat(p.Subscribe, others.Subscribe),
		Responses: p.Responses || others.Responses,
	}
}

// String returns the permissions in the syntax of the server's configuration.
func (p Permissions) String() string {
	var b strings.Builder
	list := func(label string, subjects []string) {
		fmt.Fprintf(&b, "  %s: {\n    allow: [\n", label)
		for _, subject := range subjects {
			fmt.Fprintf(&b, "      %q\n", subject)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("permissions: {\n")
	list("publish", p.Publish)
	list("subscribe", p.Subscribe)
	if p.Responses {
		b.WriteString("  allow_responses: true\n")
	}
	b.WriteString("}\n")
	return b.String()
}
