/** A process with a busy encoder, which a test kills. Argument: the request. Sends the encoder's process id. */
import { openEncoder } from '../../../infra/duckdb/encoder.ts';

const encoder = openEncoder({ memoryLimitBytes: 256 * 1024 * 1024 });
encoder.encode(JSON.parse(process.argv[2] as string)).catch(() => {});
const timer = setInterval(() => {
  if (encoder.pid === undefined) return;
  clearInterval(timer);
  process.send?.(encoder.pid);
}, 5);
