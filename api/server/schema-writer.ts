import fastJsonStringify, { type AnySchema } from 'fast-json-stringify';
import type { FastifySerializerCompiler } from 'fastify';

/**
 * Compiles the schema of a response to a JSON serialiser, as Fastify does by default, but at the first response:
 * compiling all schemas at start takes 200 ms.
 */
export const compileWriter: FastifySerializerCompiler<AnySchema> = ({ schema }) => {
  let write: ((answer: unknown) => string) | undefined;
  return (answer) => {
    write ??= fastJsonStringify(schema);
    return write(answer);
  };
};
