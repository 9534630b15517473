import { setTimeout as pause } from 'node:timers/promises';
import { Agent, request } from 'undici';
import type { MeasuredServer } from './agent-server.ts';
import { turns } from './load.ts';
import { ask, createThread } from './stream-run.ts';

/** Long enough for two keep-alive comments on each open stream. */
const openForMs = 12_000;
const farAwaySeconds = 86_400;

/** Memory of `count` open streams of runs that have not started, in MiB. */
export async function idleStreamsMib(server: MeasuredServer, streams: number): Promise<number> {
  const dispatcher = new Agent({ bodyTimeout: 0, headersTimeout: 0 });
  const plan = { runs: streams, atOnce: 32, events: 0 };
  const waiting: string[] = [];
  try {
    await turns(plan, async () => {
      const threadId = await createThread(server, dispatcher);
      const body = { assistant_id: 'burst', input: { events: 1 }, after_seconds: farAwaySeconds };
      const run = await ask<{ run_id: string }>(server, dispatcher, `/threads/${threadId}/runs`, body);
      waiting.push(`/threads/${threadId}/runs/${run.run_id}/stream`);
    });
    const before = server.memoryMib();
    let closed = 0;
    await turns(plan, async (turn) => {
      const { statusCode, body } = await request(`${server.url}${waiting[turn]}`, {
        headers: server.headers,
        dispatcher,
      });
      if (statusCode !== 200) throw new Error(`GET ${waiting[turn]}: ${statusCode}`);
      body.on('error', () => undefined).resume();
      body.once('close', () => {
        closed += 1;
      });
    });
    await pause(openForMs);
    const mib = server.memoryMib() - before;
    if (closed > 0) throw new Error(`${closed} of ${streams} idle streams were closed.`);
    return mib;
  } finally {
    await dispatcher.destroy();
  }
}
