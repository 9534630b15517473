/**
 * The flood of the bench `fairness`, in a separate process, so that it does not delay the measuring client.
 * Its argument is the target of the flood; it exits when its parent disconnects.
 */
import { setMaxListeners } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { type Addresses, disconnect, exportDays, ingest, query, run, type Tenant } from './requests.ts';

export interface Flood {
  readonly part: 'ingest' | 'queries' | 'runs' | 'exports';
  readonly at: Addresses;
  readonly tenant: Tenant;
  /** First exported day. */
  readonly beginSeconds: number;
}

const bodyBytes = 50_000_000;
const { part, at, tenant, beginSeconds } = JSON.parse(process.argv[2] as string) as Flood;
const over = new AbortController();
const { signal } = over;
setMaxListeners(100_000, signal);
process.once('disconnect', () => over.abort());

/** Repeats `work` with this concurrency. */
async function again(count: number, work: () => Promise<unknown>): Promise<void> {
  const one = async () => {
    while (!signal.aborted) {
      await work().catch((error: unknown) => {
        if (!signal.aborted) throw error;
      });
    }
  };
  await Promise.all(Array.from({ length: count }, one));
}

/** Sends a body without its last byte, until the server closes the connection. */
async function withholdEnd(): Promise<void> {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(at.main).port) });
  socket.on('error', () => undefined);
  const headers = ['Host: bench', `x-api-key: ${tenant.key}`, `Content-Length: ${bodyBytes}`];
  socket.write(`POST /runs/batch HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`);
  socket.write(Buffer.alloc(bodyBytes - 1, ' '));
  await new Promise<void>((resolve) => {
    socket.once('data', () => resolve()).once('close', () => resolve());
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
  socket.destroy();
  await pause(500, undefined, { signal });
}

const floods: Record<Flood['part'], () => Promise<unknown>> = {
  ingest: () =>
    Promise.all([again(16, () => ingest(at, tenant, { runs: 10, bytes: 100_000 }, signal)), again(11, withholdEnd)]),
  queries: () => again(64, () => query(at, tenant, signal)),
  runs: () => again(96, () => run(at, tenant, 2_000, signal)),
  exports: () => again(10, () => exportDays(at, tenant, { beginSeconds, days: 31 }, signal)),
};
await floods[part]();
await disconnect();
