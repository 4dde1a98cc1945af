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
// operator with the right transport.AdminAct can read and act. cluster.Config.Authorize restricts
// operators further.
func OperatorPermissions(cluster, operator string, right transport.AdminRight) (Permissions, error) {
	if err := checkNames(cluster, operator); err != nil {
		return Permissions{}, err
	}
	p := Permissions{
		Publish:   []string{asks(cluster, transport.AdminRead) + "*." + token(operator)},
		Subscribe: []string{inbox(cluster, inboxOperator, operator) + ".>"},
	}
	if right != transport.AdminRead {
		p.Publish = append(p.Publish, asks(cluster, transport.AdminAct)+"*."+token(operator))
	}
	return p, nil
}

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
	return Permissions{slices.Concat(p.Publish, others.Publish), slices.Concat(p.Subscribe, others.Subscribe)}
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
