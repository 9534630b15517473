import fastJsonStringify, { type AnySchema } from 'fast-json-stringify';
import type { FastifySerializerCompiler } from 'fastify';

/**
 * Compiles the schema of a response to a JSON serialiser, like Fastify's own compiler, but only at the first response,
 * because compiling all schemas at the start takes 200 ms.
 */
export const compileWriter: FastifySerializerCompiler<AnySchema> = ({ schema }) => {
  let write: ((answer: unknown) => string) | undefined;
  return (answer) => {
    write ??= fastJsonStringify(schema);
    return write(answer);
  };
};
