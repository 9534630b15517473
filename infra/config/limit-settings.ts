import { count, required, type Setting } from './setting.ts';

/** Maximum number of organisations, and of resources per organisation. Lowering a limit deletes nothing. */
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
    'Maximum number of workspaces of one organisation.',
  ),
  maxMembers: required(
    'RUNLAKE_MAX_MEMBERS',
    count(1, 10_000_000),
    100_000,
    'Maximum number of users of one organisation.',
  ),
  maxApiKeys: required(
    'RUNLAKE_MAX_API_KEYS',
    count(1, 10_000_000),
    10_000,
    'Maximum number of API keys of one organisation that are neither revoked nor expired. `runlake keys create` ignores this limit.',
  ),
  maxProjects: required(
    'RUNLAKE_MAX_PROJECTS',
    count(1, 10_000_000),
    100_000,
    'Maximum number of tracing projects of one organisation, including those that traces create.',
  ),
  exportMaxDestinations: required(
    'RUNLAKE_EXPORT_MAX_DESTINATIONS',
    count(0, 1_000_000),
    1_000,
    'Maximum number of bulk export destinations of one organisation.',
  ),
  exportMaxSchedules: required(
    'RUNLAKE_EXPORT_MAX_SCHEDULES',
    count(0, 1_000_000),
    1_000,
    'Maximum number of scheduled bulk exports of one organisation that are not cancelled; 0 allows none.',
  ),
  exportMaxUnfinished: required(
    'RUNLAKE_EXPORT_MAX_UNFINISHED',
    count(1, 1_000_000),
    10_000,
    'Maximum number of waiting and running bulk exports of one organisation. Those that schedules create do not count and are never refused.',
  ),
  agentsMaxAssistants: required(
    'RUNLAKE_AGENTS_MAX_ASSISTANTS',
    count(1, 10_000_000),
    100_000,
    'Maximum number of assistants of one organisation, including those that graphs create.',
  ),
} as const satisfies Record<string, Setting>;
