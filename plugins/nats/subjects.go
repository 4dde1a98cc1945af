// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"strconv"
	"strings"

	"github.com/refold-io/refold/identity"
	"github.com/refold-io/refold/transport"
)

const root = "refold."

// token returns a name as one token of a subject. A name contains no "~".
func token(name string) string { return strings.ReplaceAll(name, ".", "~") }

type subjects struct {
	prefix string // of all subjects of the cluster, with a trailing dot
	self   identity.Node
	from   string // the last token of the subjects to which the node publishes
}

func newSubjects(cluster string, self identity.Node) subjects {
	return subjects{prefix: root + token(cluster) + ".", self: self, from: token(self.Name)}
}

func (s *subjects) to(lane transport.Lane, node identity.Node) string {
	if node.UID == 0 {
		return s.prefix + "join." + token(node.Name) + "." + s.from
	}
	return s.prefix + lane.String() + "." + token(node.Name) + "." + strconv.FormatUint(node.UID, 16) + "." + s.from
}

func (s *subjects) lane(lane transport.Lane) string {
	return s.prefix + lane.String() + "." + s.from + "." + strconv.FormatUint(s.self.UID, 16) + ".*"
}

func (s *subjects) join() string { return s.prefix + "join." + s.from + ".*" }

// adminQueue is the queue group of the nodes' subscriptions for operators. One node of the group
// receives each request.
const adminQueue = "refold"

// anyNode replaces the name of a node. No name contains an "@".
const anyNode = "@any"

// admin returns the subjects of the node's subscriptions for operators: one for its name and one
// for any node. They match the requests of all rights and services.
func (s *subjects) admin() (named, any string) {
	return s.prefix + "admin.*.*." + s.from + ".*", s.prefix + "admin.*.*." + anyNode + ".*"
}

// asks returns the prefix of the subjects of requests for a service that use a right. A credential that
// may publish only to the subjects of one service and right has no other right.
func asks(cluster string, right transport.AdminRight, service string) string {
	return root + token(cluster) + ".admin." + right.String() + "." + token(service) + "."
}

// ask returns the subject of an operator's request to a node, or to any node if the name is empty.
func ask(cluster string, right transport.AdminRight, service, node, operator string) string {
	to := anyNode
	if node != "" {
		to = token(node)
	}
	return asks(cluster, right, service) + to + "." + token(operator)
}

// rightOf returns the right and the service that a request uses, according to its subject.
func rightOf(cluster, subject string) (right transport.AdminRight, service string, ok bool) {
	rest, ok := strings.CutPrefix(subject, root+token(cluster)+".admin.")
	if !ok {
		return 0, "", false
	}
	name, rest, _ := strings.Cut(rest, ".")
	service, _, ok = strings.Cut(rest, ".")
	for _, right := range []transport.AdminRight{transport.AdminRead, transport.AdminAct} {
		if ok && right.String() == name {
			return right, strings.ReplaceAll(service, "~", "."), true
		}
	}
	return 0, "", false
}

// Kinds of users with an inbox.
const (
	inboxOperator = "operator"
	inboxLease    = "lease"
)

// inbox returns the prefix of the subjects for replies to a user. Only this user may subscribe to
// them.
func inbox(cluster, label, name string) string {
	return root + token(cluster) + ".inbox." + label + "." + token(name)
}

func sender(subject string) string {
	return strings.ReplaceAll(subject[strings.LastIndexByte(subject, '.')+1:], "~", ".")
}
