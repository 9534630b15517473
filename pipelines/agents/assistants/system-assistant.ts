import { v5 as uuidv5 } from 'uuid';

/** The namespace of the reference server, because clients compute these ids themselves. */
const graphNamespace = '6ba7b821-9dad-11d1-80b4-00c04fd430c8';

/** The id of the system assistant of a graph, which the server creates when it first serves the graph. */
export function systemAssistantId(graphId: string): string {
  // Bytes, because the package throws for the text of a lone surrogate.
  return uuidv5(Buffer.from(graphId), graphNamespace);
}

const uuidPattern = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Returns an assistant id in lower case; for a graph id, the id of the graph's system assistant. */
export function assistantIdOf(idOrGraphId: string): string {
  return uuidPattern.test(idOrGraphId) ? idOrGraphId.toLowerCase() : systemAssistantId(idOrGraphId);
}
