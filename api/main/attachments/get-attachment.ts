import { Type } from 'typebox';
import { getAttachment as readAttachment } from '../../../pipelines/attachments/get-attachment.ts';
import { Answer, defineOperation } from '../../server/operation.ts';

/** `GET /public/attachments/{token}`: where the links of `s3_urls` lead. */
export const getAttachment = defineOperation({
  operationId: 'getAttachment',
  method: 'GET',
  path: '/public/attachments/:token',
  tag: 'runs',
  summary: 'One attachment of a run',
  description: 'Needs no key: the token is in the links that a run holds under `s3_urls`, and works for an hour.',
  access: { public: true, tenantScope: 'none' },
  errors: ['NOT_FOUND', 'LINK_EXPIRED'],
  schema: {
    params: Type.Object({ token: Type.String({ maxLength: 8_192 }) }),
    response: { 200: Type.String({ contentEncoding: 'binary', description: 'The bytes that were sent.' }) },
    produces: 'application/octet-stream',
  },
  handler: async ({ params, services }) => {
    const { warehouse, database, attachmentSigner: signer } = services;
    const { name, mimeType, content } = await readAttachment({ warehouse, database, signer }, params.token);
    return new Answer({
      body: content,
      headers: {
        'content-type': mimeType,
        // Senders choose type and content: a browser is to store it and never to run it in our name.
        'content-disposition': `attachment; filename*=UTF-8''${encodeExtended(name)}`,
        'content-security-policy': "default-src 'none'; sandbox",
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'no-referrer',
        'cache-control': 'private, no-store',
      },
    });
  },
});

/** RFC 8187, which allows less than URLs do. */
function encodeExtended(text: string): string {
  return encodeURIComponent(text).replace(/['()*]/g, (character) => `%${character.charCodeAt(0).toString(16)}`);
}
