import { type Static, type TSchema, Type } from 'typebox';
import { isRunlakeError } from '../../../infra/errors/runlake-error.ts';
import { type BodyShare, getBodyBudget } from '../../../pipelines/ingest/body/body-budget.ts';
import { JsonObject, optional } from '../../server/formats.ts';
import { compileValidator } from '../../server/schema-check.ts';
import type { AgentAccess } from '../access/agent-access.ts';
import type { AgentInput, Agents } from '../agent-operation.ts';

/** A message from a client. Source: `@langchain/protocol` 0.0.13, Command. */
export const Command = Type.Object({
  id: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
  method: Type.String({ minLength: 1, maxLength: 100 }),
  params: optional(JsonObject()),
});
export type Command = Static<typeof Command>;

/** The caller of a command and the thread that the command applies to. */
export interface CommandContext extends Pick<AgentInput, 'caller' | 'request'> {
  readonly agents: Agents;
  /** Access rights of this command. Default: the access rights of the request. */
  readonly access?: AgentAccess;
  /** Id of the thread in lower case. */
  readonly threadId: string;
}

type CommandErrorCode =
  | 'invalid_argument'
  | 'unknown_command'
  | 'unknown_error'
  | 'no_such_run'
  | 'no_such_subscription'
  | 'no_such_namespace'
  | 'no_such_interrupt'
  | 'no_such_checkpoint'
  | 'permission_denied'
  | 'not_supported';

export interface CommandError {
  readonly type: 'error';
  readonly id: number | null;
  readonly error: CommandErrorCode;
  readonly message: string;
}

export interface CommandSuccess {
  readonly type: 'success';
  readonly id: number;
  readonly result: object;
  readonly meta: { readonly thread_id: string; readonly applied_through_seq: number };
}

export class CommandRejectedError extends Error {
  readonly code: CommandErrorCode;

  constructor(code: CommandErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}

const protocolCodeByErrorCode: Readonly<Record<string, CommandErrorCode>> = {
  CHECKPOINT_NOT_FOUND: 'no_such_checkpoint',
  RUN_NOT_FOUND: 'no_such_run',
  FIELD_NOT_BUILT: 'not_supported',
  FORBIDDEN: 'permission_denied',
  AUTH_FORBIDDEN: 'permission_denied',
  API_KEY_INVALID: 'permission_denied',
  WORKSPACE_FORBIDDEN: 'permission_denied',
  AUTH_REJECTED: 'permission_denied',
};

/** Builds the error response for an error that the caller caused. Returns undefined for other errors. */
export function buildErrorResponse(id: number | null, error: unknown): CommandError | undefined {
  if (error instanceof CommandRejectedError) return { type: 'error', id, error: error.code, message: error.message };
  if (!isRunlakeError(error) || error.class !== 'caller') return undefined;
  const { fields } = error;
  const fieldErrors = fields?.map(({ loc, msg }) => `${loc.join('.')}: ${msg}`).join('; ');
  return {
    ...{ type: 'error', id, error: protocolCodeByErrorCode[error.code] ?? 'invalid_argument' },
    message: fieldErrors ? `${error.message} ${fieldErrors}` : error.message,
  };
}

/** Returns a function that validates the params of a command. @throws INVALID_REQUEST */
export function createParamsReader<const S extends TSchema>(schema: S): (params: unknown) => Static<S> {
  const check = compileValidator({ schema, httpPart: 'body', method: '', url: '' });
  return (params) => {
    const { error } = check(params ?? {}) as { readonly error?: Error };
    if (error !== undefined) throw error;
    return (params ?? {}) as Static<S>;
  };
}

export type MessageMemory = Pick<BodyShare, 'addValue' | 'close'>;

/** Reserves memory for a message of a socket, until it is processed. Calls `refuse` if there is none, also later. */
export function reserveMessageMemory(
  { agents: { config }, caller }: CommandContext,
  bytes: number,
  refuse: () => void,
): MessageMemory | undefined {
  const share = getBodyBudget(config).open(caller.organizationId, refuse);
  try {
    share.take(bytes);
    return share;
  } catch {
    share.close();
    refuse();
    return undefined;
  }
}
