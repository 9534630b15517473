import { type RunlakeError, runlakeError } from '../../../infra/errors/runlake-error.ts';
import { toJsonObject } from '../../../infra/json/json-value.ts';
import {
  addRequiredMetadata,
  addRequiredMetadataToChanges,
  combineFilters,
} from '../../../pipelines/agents/auth/access-filter.ts';
import type { AuthorizationRequest } from '../../../pipelines/agents/auth/agent-user.ts';
import type { Authorizer, Values } from './authorizer.ts';

type Event = AuthorizationRequest['event'];

/** Input of an operation, already validated against the operation's schema. */
export interface RuleInput {
  readonly params: Readonly<Record<string, string>>;
  readonly query: Values;
  readonly body: Values;
}

type Proceed = (changes?: { readonly query?: unknown; readonly body?: unknown }) => Promise<unknown>;

/**
 * Authorises an operation under custom authentication. Runs checks, then calls `proceed` with the input, which the rule
 * may have restricted. Resolves with the response.
 */
export type Rule = (input: RuleInput, authorizer: Authorizer, proceed: Proceed) => Promise<unknown>;

/** Rule without checks, for operations that authorise the parts of a request themselves; see `executeRequestPart`. */
export const allowAllRule: Rule = (_input, _authorizer, proceed) => proceed();

export const readThreadId = ({ params }: RuleInput) => (params.thread_id as string).toLowerCase();
export const createThreadNotFoundError = (thread: string) => runlakeError('THREAD_NOT_FOUND', { thread });

/** Returns a rule that checks access to the thread. A run is accessible if its thread is. */
export const createThreadRule =
  (
    event: Event,
    missing: (input: RuleInput) => RunlakeError = (input) => createThreadNotFoundError(readThreadId(input)),
  ): Rule =>
  async (input, authorizer, proceed) => {
    const id = readThreadId(input);
    const { run_id } = input.params;
    const { action } = input.query ?? {};
    const value = { thread_id: id, ...(run_id && { run_id }), ...(action ? { action } : {}) };
    await authorizer.authorizeRow(event, id, value, missing(input));
    return proceed();
  };

/**
 * Returns a rule that authorises the creation of a row. If the row already existed (`if_exists`), the caller must also
 * have access to it.
 */
export const createCreationRule =
  (event: 'threads:create' | 'assistants:create', createExistsError: (id: string) => RunlakeError): Rule =>
  async (input, authorizer, proceed) => {
    const { required, value } = await authorizer.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const metadata = addRequiredMetadata(toJsonObject(value.metadata), required);
    const created = toJsonObject(await proceed({ body: { ...input.body, metadata } }));
    const [kind, column] =
      event === 'threads:create' ? (['threads', 'thread_id'] as const) : (['assistants', 'assistant_id'] as const);
    const id = created[column] as string;
    if (!(await authorizer.rowMatches(kind, id, required))) throw createExistsError(id);
    return created;
  };

/**
 * Returns a rule that authorises a change of a row. If the metadata is changed, the metadata that the handler requires
 * is kept, so that the row stays accessible.
 */
export const createChangeRule =
  (event: Event, readId: (input: RuleInput) => string, missing: (id: string) => RunlakeError): Rule =>
  async (input, authorizer, proceed) => {
    const [kind] = event.split(':');
    const id = readId(input);
    const value = { ...input.body, [`${kind?.slice(0, -1)}_id`]: id };
    const { required, value: allowedValue } = await authorizer.authorizeRow(event, id, value, missing(id));
    const metadata = allowedValue.metadata;
    if (metadata === undefined || metadata === null) return proceed();
    return proceed({
      body: { ...input.body, metadata: addRequiredMetadataToChanges(toJsonObject(metadata), required) },
    });
  };

/** Returns a rule that authorises a search. `buildEmptyResponse` builds the response if no row can match. */
export const createSearchRule =
  (event: Event, buildEmptyResponse: () => unknown): Rule =>
  async (input, authorizer, proceed) => {
    const { required, value } = await authorizer.allow(event, { ...input.body, metadata: input.body.metadata ?? {} });
    const metadata = combineFilters(toJsonObject(value.metadata), required ?? {});
    return metadata === undefined ? buildEmptyResponse() : proceed({ body: { ...input.body, metadata } });
  };
