import { runlakeError } from '../../../infra/errors/runlake-error.ts';
import { type GranularUsage, readGranularUsage } from '../../tools/granular-usage.ts';
import { type MainApiClient, type MainApiOptions, withMainApi } from '../main-api-client.ts';
import { parseTimeOption } from '../parse-options.ts';
import { printTable, toPrintable } from '../print-table.ts';

export interface UsageOptions extends MainApiOptions {
  readonly start?: string;
  readonly end?: string;
  readonly groupBy: string;
}

const hourMs = 3_600_000;
const defaultRangeMs = 7 * 24 * hourMs;

/** Runs `runlake usage`. */
export async function printUsage(options: UsageOptions): Promise<void> {
  const end = readTime('--end', options.end, Date.now() + hourMs);
  const start = readTime('--start', options.start, Date.parse(end) - defaultRangeMs);
  if (start >= end) {
    const reason = '--start must be before --end, and the default of --end is the current time.';
    throw runlakeError('BAD_REQUEST', { reason });
  }
  await withMainApi(options, async (client) => {
    const answer = await readGranularUsage(await findWorkspaces(client, options.workspace), (ids) => {
      const query = new URLSearchParams({ start_time: start, end_time: end, group_by: options.groupBy });
      for (const id of ids) query.append('workspace_ids', id);
      return client.ask<GranularUsage>('GET', `/orgs/current/billing/granular-usage?${query}`);
    });
    if (options.json === true) {
      for (const row of answer.usage) console.log(JSON.stringify(row));
      return;
    }
    if (answer.usage.length === 0) return console.log('No traces in this range.');
    const rows = answer.usage.map(({ time_bucket: bucket, dimensions, traces }) => [
      ...[bucket, formatDimensions(dimensions), String(traces)],
    ]);
    const total = answer.usage.reduce((sum, { traces }) => sum + traces, 0);
    printTable([['FROM', options.groupBy.toUpperCase(), 'TRACES'], ...rows, ['total', '', String(total)]]);
  });
}

/** Returns the named workspace, or all workspaces that the key has access to. */
async function findWorkspaces(client: MainApiClient, named: string | undefined): Promise<string[]> {
  if (named !== undefined) return [client.workspaceId as string];
  const workspaces = await client.ask<{ readonly id: string }[]>('GET', '/workspaces?include_deleted=true');
  return workspaces.map(({ id }) => id);
}

/** Names before ids, because a dimension has both. */
function formatDimensions(dimensions: Readonly<Record<string, unknown>>): string {
  const names = Object.entries(dimensions).filter(([key]) => !key.endsWith('_id'));
  const shown = names.length > 0 ? names : Object.entries(dimensions);
  return toPrintable(shown.map(([, value]) => String(value ?? '-')).join(', '));
}

function readTime(option: string, text: string | undefined, fallbackMs: number): string {
  if (text === undefined) return new Date(fallbackMs).toISOString();
  return new Date(Math.floor(parseTimeOption(option, text, '2026-01-31') / 1_000)).toISOString();
}
