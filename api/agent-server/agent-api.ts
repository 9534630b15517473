import type { Config } from '../../infra/config/settings.ts';
import type { ApiForm, OwnAccess } from '../server/api-form.ts';

const exposedHeaders = ['content-location', 'location', 'x-pagination-total', 'x-pagination-next', 'x-request-id'];

/** The agent server, for {@link buildServer}: its own limit, its one organisation, its origins. */
export function agentApi(config: Config, organizationId: string, ownAccess?: OwnAccess): ApiForm {
  const origins = config.agentsCorsOrigins;
  return {
    title: 'Runlake agent server',
    description:
      'Assistants, threads, runs, crons and stored items. Wherever an assistant is named, the id of its graph will do. Times are ISO 8601 in UTC.',
    bodyLimit: { bytes: config.agentsMaxBodyBytes, setting: 'RUNLAKE_AGENTS_MAX_BODY_BYTES' },
    organizationId,
    ...(ownAccess && { ownAccess }),
    ...(origins !== undefined && {
      crossOrigin: {
        origins: origins === '*' ? ('*' as const) : new Set(origins.split(',').map((origin) => origin.trim())),
        exposedHeaders,
      },
    }),
  };
}
