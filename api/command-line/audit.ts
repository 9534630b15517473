import { type AuditLogRecord, listAuditLogs } from '../../pipelines/tenants/audit-logs.ts';
import { type OrganizationOptions, withOperator } from './keys-and-members.ts';
import { parseLimit, parseTimeOption } from './parse-options.ts';
import { printTable } from './print-table.ts';

export interface AuditOptions extends OrganizationOptions {
  readonly since?: string;
  readonly until?: string;
  readonly actor?: string;
  readonly action?: string;
  readonly limit: string;
  readonly json?: boolean;
}

const maxEntries = 100_000;
const pageSize = 1_000;

/** Runs `runlake audit`. Prints entries, newest first. */
export async function printAuditLog(options: AuditOptions): Promise<void> {
  const limit = parseLimit(options.limit, maxEntries);
  const filter = {
    since: toIsoTime('--since', options.since),
    until: toIsoTime('--until', options.until),
    actor: options.actor,
    action: options.action,
  };
  await withOperator('audit', options, async ({ database, operator }) => {
    const entries: AuditLogRecord[] = [];
    let cursor: string | undefined;
    do {
      const page = { limit: Math.min(pageSize, limit - entries.length), cursor };
      const { items, cursor: next } = await listAuditLogs(database, operator, filter, page);
      entries.push(...items);
      cursor = next ?? undefined;
    } while (cursor !== undefined && entries.length < limit);
    if (options.json === true) for (const entry of entries) console.log(JSON.stringify(entry));
    else if (entries.length === 0) console.log('No matching entries.');
    else printTable([['TIME', 'ACTOR', 'FROM', 'ACTION', 'TARGET', 'DETAILS'], ...entries.map(toCells)]);
    if (cursor !== undefined) printOlder(entries);
  });
}

/**
 * Says how to select the entries after the given ones. `--until` is exclusive and in milliseconds, so entries of the
 * last millisecond are selected again.
 */
function printOlder(entries: readonly AuditLogRecord[]): void {
  const [newest = '', oldest = ''] = [entries[0], entries.at(-1)].map((entry) => nextMillisecond(entry?.at ?? ''));
  if (oldest !== newest) console.error(`There are older entries: --until ${oldest}`);
  else console.error('There are older entries: use a larger --limit.');
}

const nextMillisecond = (at: string) => new Date(Date.parse(at) + 1).toISOString();

function toCells({ at, actor, ip, action, target, details }: AuditLogRecord): string[] {
  const name = [actor.name, actor.kind === 'api_key' || actor.kind === 'session' ? '' : `(${actor.kind})`];
  return [
    at,
    name.filter(Boolean).join(' '),
    ip ?? '-',
    action,
    target?.name ?? target?.id ?? '-',
    Object.keys(details).length === 0 ? '' : JSON.stringify(details),
  ];
}

function toIsoTime(option: string, text: string | undefined): string | undefined {
  return text === undefined ? undefined : new Date(Math.floor(parseTimeOption(option, text) / 1_000)).toISOString();
}
