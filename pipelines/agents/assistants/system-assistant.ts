import { uuidv5 } from '../../../infra/ids/uuid-v5.ts';

/** Source: the reference server; clients compute the id themselves. */
const graphNamespace = '6ba7b821-9dad-11d1-80b4-00c04fd430c8';

/** The id of the assistant that every graph has from the start. */
export function systemAssistantId(graphId: string): string {
  return uuidv5(graphId, graphNamespace);
}

const uuidPattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The id of an assistant that is named by its id, or by a graph, which stands for the one that it has from the start. */
export function assistantIdOf(idOrGraphId: string): string {
  return uuidPattern.test(idOrGraphId) ? idOrGraphId.toLowerCase() : systemAssistantId(idOrGraphId);
}
