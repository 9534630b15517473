import { count, required, type Setting } from './setting.ts';

/** How many organisations there may be, and how many of a kind each may have. What it has when a limit is lowered stays. */
export const limitSettings = {
  maxOrganizations: required(
    'RUNLAKE_MAX_ORGANIZATIONS',
    count(1, 1_000_000),
    1_000,
    'Maximum number of organisations.',
  ),
  maxWorkspaces: required(
    'RUNLAKE_MAX_WORKSPACES',
    count(1, 1_000_000),
    10_000,
    'Most workspaces of one organisation.',
  ),
  maxMembers: required('RUNLAKE_MAX_MEMBERS', count(1, 10_000_000), 100_000, 'Most users of one organisation.'),
  maxApiKeys: required(
    'RUNLAKE_MAX_API_KEYS',
    count(1, 10_000_000),
    10_000,
    'Most API keys of one organisation that are neither revoked nor expired. `runlake keys create` is not held to it.',
  ),
  maxProjects: required(
    'RUNLAKE_MAX_PROJECTS',
    count(1, 10_000_000),
    100_000,
    'Most tracing projects of one organisation, those that traces make included.',
  ),
  exportMaxDestinations: required(
    'RUNLAKE_EXPORT_MAX_DESTINATIONS',
    count(0, 1_000_000),
    1_000,
    'Most destinations of bulk exports of one organisation.',
  ),
  exportMaxSchedules: required(
    'RUNLAKE_EXPORT_MAX_SCHEDULES',
    count(0, 1_000_000),
    1_000,
    'Most scheduled bulk exports of one organisation that are not cancelled; 0 allows none.',
  ),
  exportMaxUnfinished: required(
    'RUNLAKE_EXPORT_MAX_UNFINISHED',
    count(1, 1_000_000),
    10_000,
    'Most bulk exports of one organisation that wait or run; those that schedules spawn are made nevertheless, and do not count.',
  ),
  agentsMaxAssistants: required(
    'RUNLAKE_AGENTS_MAX_ASSISTANTS',
    count(1, 10_000_000),
    100_000,
    'Most assistants of one organisation, those of graphs included.',
  ),
} as const satisfies Record<string, Setting>;
