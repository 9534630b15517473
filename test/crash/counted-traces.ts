/**
 * Returns the number of traces that the main API at `url` reports, over all time, for the first workspace of the key.
 */
export async function countedTraces({
  url,
  apiKey,
}: {
  readonly url: string;
  readonly apiKey: string;
}): Promise<number> {
  const headers = { 'x-api-key': apiKey };
  const workspaces = (await (await fetch(`${url}/workspaces`, { headers })).json()) as { id: string }[];
  const range = 'start_time=2020-01-01&end_time=2100-01-01';
  const path = `/api/v1/orgs/current/billing/granular-usage?${range}&workspace_ids=${workspaces[0]?.id}`;
  const { usage } = (await (await fetch(`${url}${path}`, { headers })).json()) as { usage: { traces: number }[] };
  return usage.reduce((sum, { traces }) => sum + traces, 0);
}
