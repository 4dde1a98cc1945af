// Copyright 2026 The Refold Authors
// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"encoding/json"
	"fmt"
)

type jsonFormat struct{}

// JSON returns the format that writes what encoding/json writes.
func JSON() Format { return jsonFormat{} }

func (jsonFormat) Name() string { return jsonName }

func (jsonFormat) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

func (jsonFormat) Unmarshal(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}

// nilFormat stands for a format that is nil, which has no valid name.
type nilFormat struct{}

func (nilFormat) Name() string                 { return "" }
func (nilFormat) Marshal(any) ([]byte, error)  { return nil, ErrNotRegistered }
func (nilFormat) Unmarshal([]byte, any) error  { return ErrUnknown }
