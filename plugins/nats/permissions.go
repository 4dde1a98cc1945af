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
	"github.com/refold-io/refold/transport"
)

// Permissions are the subjects that a NATS user may use. A subject that is followed by a space and
// the name of a queue group may be used only for subscriptions in this group. The user must not have the permission
// allow_responses as well: a server does not check the reply subject of a message, so the user
// could send a message to itself and then publish to any subject as a response.
type Permissions struct{ Publish, Subscribe []string }

// NodePermissions returns the permissions of the node with this name. The node receives only its
// own messages and sends only as itself, so the sender of a message is certain. It may publish to
// the inboxes of operators, for its answers. Leases also need [LeasePermissions].
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
	p.Publish = append(p.Publish, s.prefix+"join.*."+s.from, inbox(cluster, inboxOperator, "*")+".>")
	named, any := s.admin()
	// Outside of the queue group, a node would receive copies of the requests to other nodes, and
	// could answer them first.
	p.Subscribe = append(p.Subscribe, s.join(), named+" "+adminQueue, any+" "+adminQueue)
	return p, nil
}

// OperatorPermissions returns the permissions to send requests to the nodes of a cluster: see
// [ConnectOperator]. An operator with the right transport.AdminRead can query nodes only. An
// operator with the right transport.AdminAct can read and act. The permissions are limited to the
// named services, by default "cluster", "ddata" and "sharding"; "*" stands for all. The services of a
// console ("inspect", which shows events and states, "projection" and "runtime") must be named.
// cluster.Config.Authorize restricts operators further.
//
//	read, err := nats.OperatorPermissions("bank", "ops", transport.AdminRead, "cluster", "sharding", "inspect")
//	act, err := nats.OperatorPermissions("bank", "ops", transport.AdminAct, "sharding")
//	fmt.Println(read.And(act))
func OperatorPermissions(cluster, operator string, right transport.AdminRight, services ...string) (Permissions, error) {
	if err := checkNames(cluster, operator); err != nil {
		return Permissions{}, err
	}
	if len(services) == 0 {
		services = []string{"cluster", "ddata", "sharding"}
	}
	p := Permissions{Subscribe: []string{inbox(cluster, inboxOperator, operator) + ".>"}}
	for _, service := range services {
		if err := identity.CheckName(service); err != nil && service != allServices {
			return Permissions{}, fmt.Errorf("%w: service: %w", ErrInvalid, err)
		}
		p.Publish = append(p.Publish, asks(cluster, transport.AdminRead, service)+"*."+token(operator))
		if right != transport.AdminRead {
			p.Publish = append(p.Publish, asks(cluster, transport.AdminAct, service)+"*."+token(operator))
		}
	}
	return p, nil
}

// allServices is the wildcard for services.
const allServices = "*"

// LeasePermissions returns the permissions for the leases of a cluster with a time-out: see
// [OpenLeases]. All nodes share a bucket, so a node can take the leases of another one. Only the
// node itself can read the server's replies. JetStream sends a reply to any reply subject without a
// check of permissions. A node can therefore cause such replies, which are JSON, on all subjects of
// its NATS account: the account must have no streams except those of leases.
func LeasePermissions(cluster, name string, timeout time.Duration) (Permissions, error) {
	if err := checkNames(cluster, name); err != nil {
		return Permissions{}, err
	}
	kv := bucket(cluster, timeout)
	return Permissions{
		Publish:   []string{"$KV." + kv + ".*", "$JS.API.STREAM.INFO.KV_" + kv, "$JS.API.STREAM.MSG.GET.KV_" + kv},
		Subscribe: []string{inbox(cluster, inboxLease, name) + ".>"},
	}, nil
}

// LeaseBucketPermissions returns the permissions that an operator needs in addition to
// OperatorPermissions for the bucket of the leases of a cluster: see [CreateLeaseBucket].
func LeaseBucketPermissions(cluster string, timeout time.Duration) Permissions {
	stream := "KV_" + bucket(cluster, timeout)
	return Permissions{Publish: []string{"$JS.API.STREAM.CREATE." + stream, "$JS.API.STREAM.UPDATE." + stream}}
}

func checkNames(cluster, name string) error {
	if err := cmp.Or(identity.CheckCluster(cluster), identity.CheckName(name)); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// And returns the union of these and other permissions.
func (p Permissions) And(others Permissions) Permissions {
	return Permissions{union(p.Publish, others.Publish), union(p.Subscribe, others.Subscribe)}
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, subject := range b {
		if !slices.Contains(out, subject) {
			out = append(out, subject)
		}
	}
	return out
}

// String returns the permissions in the syntax of the server's configuration.
func (p Permissions) String() string {
	list := func(subjects []string) string {
		quoted := make([]string, len(subjects))
		for i, subject := range subjects {
			quoted[i] = fmt.Sprintf("      %q\n", subject)
		}
		return "{\n    allow: [\n" + strings.Join(quoted, "") + "    ]\n  }\n"
	}
	return "permissions: {\n  publish: " + list(p.Publish) + "  subscribe: " + list(p.Subscribe) + "}\n"
}
