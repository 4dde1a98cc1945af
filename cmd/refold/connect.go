// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/refold-io/refold/cluster"
	"github.com/refold-io/refold/ddata"
	"github.com/refold-io/refold/plugins/nats"
	"github.com/refold-io/refold/sharding"
	"github.com/refold-io/refold/transport"
)

// clusterFlags say which cluster it is about, who asks its nodes, and how to get to the NATS servers.
type clusterFlags struct {
	Cluster  string        `help:"The name of the cluster. Needed to ask its nodes." env:"REFOLD_CLUSTER" placeholder:"NAME"`
	Operator string        `help:"The name by which the nodes know you." default:"operator" placeholder:"NAME"`
	Timeout  time.Duration `help:"How long to wait for each answer." default:"10s"`

	NATS           []string `name:"nats" help:"The NATS servers." default:"nats://127.0.0.1:4222" env:"REFOLD_NATS" placeholder:"URL"`
	TokenFile      string   `help:"A file that holds a token, or user:password." env:"REFOLD_NATS_TOKEN_FILE" placeholder:"FILE"`
	Credentials    string   `help:"A file of credentials, as nsc makes it." env:"REFOLD_NATS_CREDENTIALS" placeholder:"FILE"`
	NKeyFile       string   `name:"nkey-file" help:"A file that holds the seed of an nkey." placeholder:"FILE"`
	CA             string   `name:"ca" help:"The certificates of those who may have signed the server's." placeholder:"FILE"`
	Cert           string   `help:"The certificate to show." placeholder:"FILE"`
	Key            string   `help:"Its key." placeholder:"FILE"`
	ServerName     string   `help:"The name in the server's certificate. Defaults to the host of the URL." placeholder:"NAME"`
	AllowPlaintext bool     `help:"Allow connections without TLS to other machines."`
}

func (f *clusterFlags) access() nats.Access {
	return nats.Access{
		URLs: f.NATS, AllowPlaintext: f.AllowPlaintext, CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: f.ServerName,
		CredentialsFile: f.Credentials, NKeyFile: f.NKeyFile, TokenFile: f.TokenFile, ConnectTimeout: max(f.Timeout/2, 2*time.Second),
	}
}

// Validate checks the flags.
func (f *clusterFlags) Validate() error {
	if f.Timeout <= 0 {
		return fmt.Errorf("--timeout is %v, it must be more than 0", f.Timeout)
	}
	return nil
}

// named returns an error if it is not said which cluster it is about.
func (f *clusterFlags) named() error {
	if f.Cluster == "" {
		return errors.New("--cluster is missing: the name of the cluster")
	}
	return nil
}

// nodes asks the nodes of a cluster: about the cluster, about replicated data, or about shards.
type nodes struct {
	members *cluster.Admin
	data    *ddata.Admin
	shards  *sharding.Admin
}

// with lets do ask the nodes, and waits for each answer as long as the flags say.
func (f *clusterFlags) with(do func(n *nodes) error) (err error) {
	if err = f.named(); err != nil {
		return err
	}
	op, err := nats.ConnectOperator(nats.OperatorConfig{Access: f.access(), Cluster: f.Cluster, Name: f.Operator})
	if err != nil {
		return hint(err)
	}
	defer func() { err = errors.Join(err, op.Close()) }()
	return do(newNodes(patient{op, f.Timeout}))
}

func newNodes(asker transport.AdminClient) *nodes {
	return &nodes{cluster.NewAdmin(asker), ddata.NewAdmin(asker), sharding.NewAdmin(asker)}
}

// hint says which flags tell who somebody is, if that is what is wrong.
func hint(err error) error {
	if strings.Contains(strings.ToLower(err.Error()), "authorization") {
		return fmt.Errorf("%w (--token-file, --credentials, --nkey-file or --cert says who you are)", err)
	}
	return err
}

// patient waits for each answer for a time.
type patient struct {
	transport.AdminClient

	timeout time.Duration
}

// Ask implements transport.AdminClient.
func (p patient) Ask(ctx context.Context, node string, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	return p.AdminClient.Ask(ctx, node, request)
}

// present asks a node, or any, which members may host something, and returns their names, and which of them leave.
func (n *nodes) present(ctx context.Context, ask string) (names []string, leaves map[string]bool, err error) {
	s, err := n.members.State(ctx, ask)
	if err != nil {
		return nil, nil, err
	}
	leaves = map[string]bool{}
	for i := range s.Members {
		m := &s.Members[i]
		if m.Status == cluster.Down.String() || m.Status == cluster.Joining.String() {
			continue
		}
		name, _, _ := strings.Cut(m.Node, "#")
		names = append(names, name)
		leaves[name] = m.Status == cluster.Leaving.String() || m.Status == cluster.Exiting.String()
	}
	return names, leaves, nil
}
