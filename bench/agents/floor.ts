import { randomUUID } from 'node:crypto';
import type { CompiledStateGraph } from '@langchain/langgraph';
import pg from 'pg';
import { buildThreadKey } from '../../pipelines/agents/checkpoints/copy-checkpoints.ts';
import { LeasedSaver } from '../../pipelines/agents/checkpoints/leased-saver.ts';
import { type LoadPlan, turns } from './load.ts';

type Graph = CompiledStateGraph<{ events: number }, { events: number }, string>;

/** Runs the graph in this thread, with the product's saver and without a server. */
export interface Floor {
  /** @returns runs a second. */
  run(plan: LoadPlan): Promise<number>;
  end(): Promise<void>;
}

/** @param databaseUrl Postgres of a Runlake, in which this process creates threads and claims them. */
export async function openFloor(databaseUrl: string): Promise<Floor> {
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 10 });
  const { graph } = (await import(new URL('graphs/burst.js', import.meta.url).href)) as { graph: Graph };
  const leaseToken = randomUUID();
  /** A graph and a saver for each run, as in a worker. */
  function instance(): { readonly own: Graph; readonly saver: LeasedSaver } {
    const saver = new LeasedSaver(pool, { leaseToken }, { batchDelayMs: 10, onFailure: () => undefined });
    const own: Graph = Object.assign(Object.create(Object.getPrototypeOf(graph)), graph);
    own.checkpointer = saver;
    return { own, saver };
  }

  async function holdThreads(count: number): Promise<string[]> {
    const threadIds = Array.from({ length: count }, () => randomUUID());
    const { rows } = await pool.query<{ deployment_id: string }>(
      `INSERT INTO agents.threads (deployment_id, thread_id, write_token, write_until)
       SELECT (SELECT id FROM organizations LIMIT 1), thread_id, $2, now() + interval '1 hour'
       FROM unnest($1::uuid[]) AS thread_id RETURNING deployment_id`,
      [threadIds, leaseToken],
    );
    return threadIds.map((threadId) => buildThreadKey(rows[0]?.deployment_id ?? '', threadId));
  }

  return {
    async run(plan) {
      const keys = await holdThreads(plan.runs);
      const began = performance.now();
      await turns(plan, async (turn) => {
        const config = { configurable: { thread_id: keys[turn] }, streamMode: 'custom' as const };
        const { own, saver } = instance();
        let seen = 0;
        for await (const _ of await own.stream({ events: plan.events }, config)) seen += 1;
        await saver.settled();
        if (seen !== plan.events) throw new Error(`The floor saw ${seen} of ${plan.events} events.`);
      });
      return (plan.runs / (performance.now() - began)) * 1_000;
    },
    end: () => pool.end(),
  };
}
