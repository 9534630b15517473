/** Ids of agents, as the stock SDKs check them: labels of the DNS. */
const agentIdPattern = /^[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

const environmentPattern = /^(?:local|development|staging|production)$/i;

const addressPattern = /^lrn:agents\/([^/]+)\/environments\/([^/]+)$/;

/** What an address of an agent must look like, for errors. */
export const addressForm =
  'lrn:agents/<id>/environments/<environment>: the id has 1 to 63 lowercase letters, digits and hyphens, begins with a ' +
  'letter and does not end with a hyphen; the environment is local, development, staging or production';

/**
 * Returns the name that the project of an agent in an environment has when it is created. Returns undefined if the id or
 * the environment is invalid. The environment is case-insensitive.
 */
export function nameAgentProject(id: string, environment: string): string | undefined {
  if (!agentIdPattern.test(id) || !environmentPattern.test(environment)) return undefined;
  return `${id}/${environment.toLowerCase()}`;
}

/** Reads the member `address` of a run or of feedback. */
interface AddressReader {
  text(key: 'address'): string | undefined;
  createError(key: 'address', reason: string): Error;
}

/**
 * Reads the address of an agent and returns the name of {@link nameAgentProject}.
 *
 * @throws the error of `reader` if the address is malformed.
 */
export function readAgentProject(reader: AddressReader): string | undefined {
  const address = reader.text('address');
  if (address === undefined) return undefined;
  const [, id = '', environment = ''] = addressPattern.exec(address) ?? [];
  const project = nameAgentProject(id, environment);
  if (project === undefined) throw reader.createError('address', `must be ${addressForm}`);
  return project;
}
