/** Granular usage of the main API, for its clients. */
import { compareTexts } from './find-named.ts';

export interface GranularUsage {
  /** Size of a bucket. */
  readonly stride: { readonly days: number; readonly hours: number };
  readonly usage: readonly {
    readonly time_bucket: string;
    /** Ids and names of what was counted. */
    readonly dimensions: Readonly<Record<string, unknown>>;
    readonly traces: number;
  }[];
}

/** Maximum number of workspaces in one request for granular usage. */
const maxWorkspaces = 200;

/**
 * Reads the usage of any number of workspaces, ordered by time. Rows with the same bucket and dimensions are added up:
 * those of a user or a key whose workspaces are in several requests.
 *
 * @param read sends one request, for at most {@link maxWorkspaces} workspaces.
 * @throws the errors of `read`.
 */
export async function readGranularUsage(
  ids: readonly string[],
  read: (workspaceIds: readonly string[]) => Promise<GranularUsage>,
): Promise<GranularUsage> {
  const rows = new Map<string, GranularUsage['usage'][number]>();
  let stride: GranularUsage['stride'] = { days: 0, hours: 0 };
  for (let start = 0; start === 0 || start < ids.length; start += maxWorkspaces) {
    const part = await read(ids.slice(start, start + maxWorkspaces));
    stride = part.stride;
    for (const row of part.usage) {
      const key = JSON.stringify([row.time_bucket, row.dimensions]);
      rows.set(key, { ...row, traces: row.traces + (rows.get(key)?.traces ?? 0) });
    }
  }
  const usage = [...rows.values()].sort((a, b) => compareTexts(a.time_bucket, b.time_bucket));
  return { stride, usage };
}
