import { type Attempt, own } from './attempt.ts';

const [from, until] = [-1, 1].map((days) => new Date(Date.now() + days * 24 * 3_600_000).toISOString());
const range = `start_time=${from}&end_time=${until}`;

/** Attempts to read the usage of another workspace, by operation. */
export const usageAttempts: Readonly<Record<string, (victim: { readonly workspaceId: string }) => Attempt>> = {
  getGranularUsage: ({ workspaceId }) => ({
    url: `/orgs/current/billing/granular-usage?${range}&group_by=project&workspace_ids=${workspaceId}`,
    answers: [200, 403],
  }),
  exportGranularUsage: ({ workspaceId }) => ({
    url: `/orgs/current/billing/granular-usage/export?${range}&group_by=project&workspace_ids=${workspaceId}`,
    answers: [200, 403],
  }),
  getOrganizationUsage: () => ({
    url: `/orgs/current/billing/usage?starting_on=${from}&ending_before=${until}`,
    answers: own,
  }),
};
