import { expect } from 'vitest';
import type { RunlakeProcess } from '../runlake-process.ts';
import { anything, expectedRun } from './expected-run.ts';
import { splitJson } from './json-text.ts';
import type { Model } from './model.ts';
import type { Projects } from './projects.ts';
import type { Tenants } from './server-of-histories.ts';
import { forEachConcurrently } from './side-by-side.ts';

/**
 * Number of runs per workspace that are also read one by one; each of these reads costs as much as a page of a hundred
 * runs.
 */
const sampleSize = 20;

/**
 * Reads every run by page and by lists of ids, and many runs also one by one, and compares the text of each field with
 * the model.
 *
 * @returns the number of runs.
 */
export async function checkRuns(
  runlake: RunlakeProcess,
  tenants: Tenants,
  model: Model,
  projects: Projects,
): Promise<number> {
  let count = 0;
  for (const [workspace, { id: workspaceId }] of tenants.workspaces.entries()) {
    const { visible, hidden } = expectedRuns(model, projects, workspace);
    const headers = { 'x-api-key': runlake.apiKey, 'x-tenant-id': workspaceId, 'content-type': 'application/json' };

    const paged = new Map<string, Map<string, string>>();
    for (let cursor: string | null = null; ; ) {
      const body = JSON.stringify({ limit: 100, order: workspace === 0 ? 'asc' : 'desc', cursor });
      const page = splitJson(await textOf(fetch(`${runlake.url}/runs/query`, { method: 'POST', headers, body })));
      for (const text of splitJson(page.get('runs') as string).values()) {
        const run = splitJson(text);
        const id = JSON.parse(run.get('id') as string) as string;
        expect(paged.has(id), `${id} is returned twice`).toBe(false);
        paged.set(id, run);
      }
      cursor = (JSON.parse(page.get('cursors') as string) as { next: string | null }).next;
      if (cursor === null) break;
    }
    expect(
      [...paged.keys()].filter((id) => !visible.has(id)),
      'unexpected runs',
    ).toEqual([]);
    expect(
      [...visible.keys()].filter((id) => !paged.has(id)),
      'missing runs',
    ).toEqual([]);
    for (const [id, run] of paged) compare(`in a page, ${id}`, run, visible.get(id) as Record<string, string>);

    const found = new Map<string, Map<string, string>>();
    const ids = [...visible.keys(), ...hidden];
    for (let from = 0; from < ids.length; from += 100) {
      const body = JSON.stringify({ id: ids.slice(from, from + 100), limit: 100 });
      const page = splitJson(await textOf(fetch(`${runlake.url}/runs/query`, { method: 'POST', headers, body })));
      for (const text of splitJson(page.get('runs') as string).values()) {
        const run = splitJson(text);
        found.set(JSON.parse(run.get('id') as string) as string, run);
      }
    }
    expect([...found.keys()].sort(), 'runs found by id').toEqual([...visible.keys()].sort());
    for (const [id, run] of found) compare(`by id, ${id}`, run, visible.get(id) as Record<string, string>);

    // A read by id costs four queries, so the test reads a sample of all runs.
    await forEachConcurrently(pickSample([...visible]), async ([id, expected]) => {
      const text = await textOf(fetch(`${runlake.url}/runs/${id}`, { headers }));
      compare(`alone, ${id}`, splitJson(text), expected);
    });
    await forEachConcurrently(pickSample(hidden), async (id) => {
      expect((await fetch(`${runlake.url}/runs/${id}`, { headers })).status, `${id} is hidden`).toBe(404);
    });
    count += visible.size;
  }
  return count;
}

function expectedRuns(model: Model, projects: Projects, workspace: number) {
  const visible = new Map<string, Record<string, string>>();
  const hidden: string[] = [];
  for (const trace of model.traces.values()) {
    if (trace.workspace !== workspace) continue;
    const isVisible = trace.project !== undefined && projects.list[trace.project]?.deleted === false;
    for (const id of trace.runs.keys()) {
      if (isVisible) visible.set(id, expectedRun(trace, id, projects.list));
      else hidden.push(id);
    }
  }
  return { visible, hidden };
}

function compare(what: string, run: ReadonlyMap<string, string>, expected: Readonly<Record<string, string>>): void {
  const differingFields = Object.entries(expected).filter(
    ([name, text]) => text !== anything && run.get(name) !== text,
  );
  if (differingFields.length === 0) return;
  const pick = (text: (name: string) => string | undefined) =>
    Object.fromEntries(differingFields.map(([name]) => [name, text(name)]));
  expect(
    pick((name) => run.get(name)),
    what,
  ).toEqual(pick((name) => expected[name]));
}

async function textOf(answer: Promise<Response>): Promise<string> {
  const { ok, status, url } = await answer;
  const text = await (await answer).text();
  if (!ok) throw new Error(`${url}: ${status} ${text}`);
  return text;
}

function pickSample<T>(list: readonly T[]): T[] {
  const step = Math.max(1, Math.floor(list.length / sampleSize));
  return list.filter((_, index) => index % step === 0);
}
