import { describe, expect, it } from 'vitest';
import { classifyAddress } from '../../../infra/network/address-range.ts';

const isPublic = undefined;
const allowable = { isAllowable: true };
const never = { isAllowable: false };

const table: readonly (readonly [address: string, expected: object | undefined])[] = [
  ['8.8.8.8', isPublic],
  ['1.1.1.1', isPublic],
  ['52.216.0.1', isPublic],
  ['2606:4700:4700::1111', isPublic],
  ['2A00:1450:4001:81B::200E', isPublic],
  ['3fff:ffff::1', isPublic],
  // Just outside the private ranges.
  ['9.255.255.255', isPublic],
  ['11.0.0.0', isPublic],
  ['100.63.255.255', isPublic],
  ['100.128.0.0', isPublic],
  ['126.255.255.255', isPublic],
  ['172.15.255.255', isPublic],
  ['172.32.0.0', isPublic],
  ['192.167.255.255', isPublic],
  ['192.169.0.0', isPublic],
  ['223.255.255.255', isPublic],
  // Loopback.
  ['127.0.0.1', allowable],
  ['127.255.255.254', allowable],
  ['::1', allowable],
  ['0:0:0:0:0:0:0:1', allowable],
  // Private.
  ['10.0.0.0', allowable],
  ['10.255.255.255', allowable],
  ['172.16.0.1', allowable],
  ['172.31.255.255', allowable],
  ['192.168.1.1', allowable],
  ['100.64.0.1', allowable],
  ['100.127.255.255', allowable],
  ['198.18.0.1', allowable],
  ['fc00::1', allowable],
  ['fdff:ffff::1', allowable],
  ['fec0::1', allowable],
  ['64:ff9b:1::7f00:1', allowable],
  // Metadata services of clouds, which return credentials.
  ['169.254.169.254', never],
  ['169.254.170.2', never],
  ['100.100.100.200', never],
  ['192.0.0.192', never],
  ['168.63.129.16', never],
  ['fd00:ec2::254', never],
  // Link-local, unspecified, multicast, reserved.
  ['169.254.0.1', never],
  ['fe80::1', never],
  ['fe80::1%lo', never],
  ['febf::1', never],
  ['0.0.0.0', never],
  ['0.1.2.3', never],
  ['::', never],
  ['224.0.0.1', never],
  ['255.255.255.255', never],
  ['240.0.0.1', never],
  ['192.0.2.1', never],
  ['203.0.113.9', never],
  ['2001:db8::1', never],
  ['2001::1', never],
  ['ff02::1', never],
  ['100::1', never],
  ['4000::1', never],
  ['200::1', never],
  // IPv4 addresses embedded in IPv6 keep their range.
  ['::ffff:127.0.0.1', allowable],
  ['::ffff:7f00:1', allowable],
  ['::ffff:10.1.2.3', allowable],
  ['::ffff:169.254.169.254', never],
  ['::ffff:8.8.8.8', isPublic],
  ['::127.0.0.1', allowable],
  ['64:ff9b::a00:1', allowable],
  ['64:ff9b::808:808', isPublic],
  ['2002:7f00:1::', allowable],
  ['2002:a9fe:a9fe::1', never],
  ['2002:808:808::1', isPublic],
  // Not an address.
  ['', never],
  ['localhost', never],
  ['1.2.3', never],
  ['127.1', never],
];

describe('the range of an address', () => {
  it.each(table)('%s', (address, expected) => {
    if (expected === undefined) expect(classifyAddress(address)).toBeUndefined();
    else expect(classifyAddress(address)).toMatchObject(expected);
  });
});
