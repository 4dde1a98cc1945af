// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// AdminService is the name under which operators ask for regions: see cluster.Node.HandleAdmin.
const AdminService = "sharding"

// AdminCommand is what an operator asks of a node.
type AdminCommand string

// The commands. All of them can be repeated.
const (
	// AdminRegions asks for the regions and proxies of the node, or the one of a type.
	AdminRegions AdminCommand = "regions"
	// AdminShards asks for the shards that the node hosts, and how many entities they have; AdminEntities for the IDs of those that run
	// in one.
	AdminShards   AdminCommand = "shards"
	AdminEntities AdminCommand = "entities"
	// AdminFind asks where an entity is.
	AdminFind AdminCommand = "find"
	// AdminRebalance asks the strategy which shards should move. It is for the node that has the coordinator.
	AdminRebalance AdminCommand = "rebalance"
	// AdminDrain gives all shards of the node away: see Region.Drain. It does not wait for that.
	AdminDrain AdminCommand = "drain"
	// AdminUndrain takes that back: see Region.Undrain.
	AdminUndrain AdminCommand = "undrain"
)

// AdminRequest is a request of an operator, in JSON.
type AdminRequest struct {
	// Service is AdminService.
	Service string       `json:"service"`
	Command AdminCommand `json:"command"`
	// Type is the name of the entity type. All commands but AdminRegions need it.
	Type string `json:"type,omitempty"`
	// Shard is what AdminEntities is about, ID what AdminFind is.
	Shard Shard  `json:"shard,omitempty"`
	ID    string `json:"id,omitempty"`
	// Behind is the shard from which on the answer of AdminShards begins; After is the type, or the ID, behind which that of AdminRegions or
	// AdminEntities does: there may be too many for one.
	Behind Shard  `json:"behind,omitempty"`
	After  string `json:"after,omitempty"`
}

// AdminAnswer is the answer, in JSON. What has gone wrong is in Error; then the rest is empty but for Reason.
type AdminAnswer struct {
	Error string `json:"error,omitempty"`
	// NoService says that the node has no region at all.
	NoService bool `json:"no_service,omitempty"`
	// Reason is "no region", "no coordinator", or empty for other errors.
	Reason string `json:"reason,omitempty"`
	// Node is who answers, as identity.Node.String writes it.
	Node     string        `json:"node,omitempty"`
	Regions  []AdminRegion `json:"regions,omitempty"`
	Shards   []AdminShard  `json:"shards,omitempty"`
	Entities []string      `json:"entities,omitempty"`
	Found    *AdminFound   `json:"found,omitempty"`
	// Moving is how many shards are moved by AdminRebalance.
	Moving int `json:"moving,omitempty"`
	// More says that there are more, behind the last one.
	More bool `json:"more,omitempty"`
}

// AdminRegion is what a region, or a proxy, runs and knows. Nodes are written as identity.Node.String does.
type AdminRegion struct {
	Type string `json:"type"`
	// Role is what the nodes have that host the type, empty for all.
	Role string `json:"role,omitempty"`
	// Total is how many shards the type is divided into.
	Total int `json:"total"`
	// Proxy says that the node hosts none; Drained that it gives all away, and takes none any more.
	Proxy   bool `json:"proxy,omitempty"`
	Drained bool `json:"drained,omitempty"`
	// Coordinator is the node with the coordinator that knows the region, empty if none does.
	Coordinator string `json:"coordinator,omitempty"`
	// Mismatch is why that one does not let the region register: its settings are others.
	Mismatch string `json:"mismatch,omitempty"`
	// Shards is how many the node hosts, Entities how many those have: which run, and which will.
	Shards   int `json:"shards"`
	Entities int `json:"entities"`
	// Waiting is how many commands wait on the node; Dropped how many have reached nobody since it was started.
	Waiting int    `json:"waiting,omitempty"`
	Dropped uint64 `json:"dropped,omitempty"`
	// CoordinatorState is what the coordinator knows, nil but on the node that has it.
	CoordinatorState *AdminCoordinator `json:"coordinator_state,omitempty"`
}

// AdminCoordinator is what the coordinator of a type knows.
type AdminCoordinator struct {
	Term  uint64 `json:"term"`
	Phase string `json:"phase"`
	// Regions and Proxies are registered, but may be gone.
	Regions int `json:"regions"`
	Proxies int `json:"proxies"`
	// Placed is how many shards have a home, Moving how many of them are being moved.
	Placed int `json:"placed"`
	Moving int `json:"moving,omitempty"`
	// Refused is how many regions and proxies can't register, since their settings are others.
	Refused int `json:"refused,omitempty"`
}

// AdminShard is a shard that a node hosts.
type AdminShard struct {
	Shard Shard `json:"shard"`
	// Entities is how many it has: which run, and which will.
	Entities int `json:"entities"`
}

// AdminFound is where an entity is.
type AdminFound struct {
	Shard Shard `json:"shard"`
	// Home is the node that has the shard, as far as the node that answers knows; empty if it does not.
	Home string `json:"home,omitempty"`
	// Coordinator is the node that should know.
	Coordinator string `json:"coordinator,omitempty"`
	// Running says that the entity runs on the node that answers.
	Running bool `json:"running,omitempty"`
}

const (
	adminPage     = 1000      // shards, or IDs, or
	adminBytes    = 192 << 10 // of those
	maxAdminError = 4 << 10
)

// ErrNoRegion says that a node has no region, and no proxy, of the type that an operator has asked for.
var ErrNoRegion = errors.New("sharding: the node has no region of the type")

// adminReasons returns the errors that are told apart, by their names.
func adminReasons() map[string]error {
	return map[string]error{"no region": ErrNoRegion, "no coordinator": ErrNoCoordinator}
}

func adminReason(err error) string {
	for text, known := range adminReasons() { // at most one of them matches
		if errors.Is(err, known) {
			return text
		}
	}
	return ""
}

// serve lets other nodes and operators ask for the regions of a node.
func (b *switchboard) serve() {
	b.node.Transport().HandleRequest(kindQuestion, b.questioned)
	b.node.HandleAdmin(AdminService, b.admin)
}

// admin answers an operator.
func (b *switchboard) admin(ctx context.Context, operator string, request []byte) []byte {
	var r AdminRequest
	var answer AdminAnswer
	err := json.Unmarshal(request, &r)
	if err == nil {
		answer, err = b.administer(ctx, operator, &r)
		answer.Node = b.node.Self().String()
	}
	if err != nil {
		text := err.Error()
		answer = AdminAnswer{Error: text[:min(len(text), maxAdminError)], Reason: adminReason(err)}
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return []byte(`{"error":"the answer can't be encoded"}`)
	}
	return out
}

func (b *switchboard) administer(ctx context.Context, operator string, r *AdminRequest) (AdminAnswer, error) {
	if r.Command == AdminRegions && r.Type == "" {
		return b.adminRegions(ctx, r.After)
	}
	s := b.find(r.Type)
	if s == nil {
		return AdminAnswer{}, fmt.Errorf("%w: %.100q", ErrNoRegion, r.Type)
	}
	return s.administer(ctx, operator, r)
}
