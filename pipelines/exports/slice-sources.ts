import type { Warehouse } from '../../infra/clickhouse/warehouse.ts';
import type { EncoderPool } from '../../infra/duckdb/encoder-pool.ts';
import type { WorkPorts } from './export-ports.ts';
import type { SliceSource } from './runs/export-run.ts';
import { countMembers } from './slices/count-members.ts';
import { encodeSlice } from './slices/encode-slice.ts';
import { findSlice } from './slices/find-slice.ts';
import { readSlice, type SliceFiles } from './slices/read-slice.ts';

/**
 * Creates slice sources that read members from ClickHouse and make files with an encoder that each export run borrows
 * for one attempt.
 */
export function sliceSources(
  { warehouse, encoders }: { readonly warehouse: Warehouse; readonly encoders: EncoderPool },
  { exportSliceRows: rows, exportSliceBytes: bytes }: WorkPorts['limits'],
): WorkPorts['openSource'] {
  return (scope, format): SliceSource<unknown> => {
    const encoder = encoders.borrow();
    const source: SliceSource<SliceFiles> = {
      count: (signal) => countMembers(warehouse, scope, signal),
      find: (after, signal) => findSlice(warehouse, scope, after, { rows, bytes }, signal),
      read: (slice, folder, signal) => readSlice({ warehouse, encoder }, { scope, slice, format, folder }, signal),
      encode: (files, folder, signal) => encodeSlice({ encoder }, files, { folder, format }, signal),
      close: () => encoders.giveBack(encoder),
    };
    return source as SliceSource<unknown>;
  };
}
