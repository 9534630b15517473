import type { ClickHouse } from '../../infra/clickhouse/clickhouse.ts';
import type { EncoderPool } from '../../infra/duckdb/encoder.ts';
import type { WorkDeps } from './export-deps.ts';
import type { SliceSource } from './runs/export-run.ts';
import { encodeSlice } from './slices/encode-slice.ts';
import { findSlice } from './slices/find-slice.ts';
import { countMembers } from './slices/members.ts';
import { readSlice, type SliceFiles } from './slices/read-slice.ts';

/** Size of JSON after which an export starts another file. The work folder holds a few times this for each export run. */
const sliceBytes = 256 * 1024 ** 2;

/**
 * Creates slice sources that read members from ClickHouse and make files with an encoder that each export run borrows
 * for one attempt.
 */
export function sliceSources(
  { clickhouse, encoders }: { readonly clickhouse: ClickHouse; readonly encoders: EncoderPool },
  { exportSliceRows: rows }: WorkDeps['limits'],
): WorkDeps['openSource'] {
  return (scope, format): SliceSource<unknown> => {
    const encoder = encoders.borrow();
    const source: SliceSource<SliceFiles> = {
      count: (signal) => countMembers(clickhouse, scope, signal),
      find: (after, signal) => findSlice(clickhouse, scope, after, { rows, bytes: sliceBytes }, signal),
      read: (slice, folder, signal) => readSlice({ clickhouse, encoder }, { scope, slice, format, folder }, signal),
      encode: (files, folder, signal) => encodeSlice({ encoder }, files, { folder, format }, signal),
      close: () => encoders.giveBack(encoder),
    };
    return source as SliceSource<unknown>;
  };
}
