// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"fmt"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

type plans struct{}

type plan struct{ typ reflect.Type }

func newPlans() *plans { return &plans{} }

func (*plans) compile(t reflect.Type) (*plan, error) { return &plan{typ: t}, nil }

func (*plans) encode(_ *plan, v any) ([]byte, error) { return msgpack.Marshal(v) }

func (*plans) decode(p *plan, data []byte) (any, error) {
	v := reflect.New(p.typ)
	if err := msgpack.Unmarshal(data, v.Interface()); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return v.Elem().Interface(), nil
}
