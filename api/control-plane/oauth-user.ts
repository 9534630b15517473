import { Type } from 'typebox';
import { optional, Text } from '../server/formats.ts';

const UserId = (description: string) => optional(Text({ minLength: 1, maxLength: 255 }), { description });

/** Fields that name the user for whom a key acts. */
export const userFields = {
  user_id: UserId('Id of a user of the organization, or any name of an end user. Default: the user of the key.'),
  ls_user_id: UserId('Same as `user_id`.'),
  svc_user_id: UserId('Same as `user_id`.'),
};

/** Query of operations on the tokens of a user. */
export const UserQuery = Type.Object(userFields);

export const ProviderId = () =>
  Type.String({
    minLength: 1,
    maxLength: 128,
    pattern: '^[A-Za-z0-9][A-Za-z0-9._~-]*$',
    description: 'Name of the provider, part of its redirect URI.',
  });
