package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	redis "github.com/gomodule/redigo/redis"
)

// redisStream appends to Redis streams: the body, the key and the headers are fields of an
// entry.
type redisStream struct{ pool *redis.Pool }

func newRedis(c Connection) (Publisher, error) {
	return &redisStream{&redis.Pool{
		MaxIdle: 16, IdleTimeout: time.Minute, DialContext: c.redis,
		TestOnBorrow: func(conn redis.Conn, used time.Time) error {
			if time.Since(used) < time.Second {
				return nil
			}
			_, err := redis.DoWithTimeout(conn, connectTimeout, "PING")
			return err
		},
	}}, nil
}

func (c Connection) redis(ctx context.Context) (redis.Conn, error) {
	config, password, err := c.credentials()
	if err != nil {
		return nil, err
	}
	database, _ := strconv.Atoi(c.address.path) // which is a number, or nothing
	options := []redis.DialOption{redis.DialConnectTimeout(connectTimeout), redis.DialReadTimeout(connectTimeout), redis.DialWriteTimeout(connectTimeout),
		redis.DialTLSHandshakeTimeout(connectTimeout), redis.DialUsername(c.Username), redis.DialPassword(password), redis.DialDatabase(database)}
	if config != nil {
		options = append(options, redis.DialUseTLS(true), redis.DialTLSConfig(config))
	}
	conn, err := redis.DialContext(ctx, "tcp", c.address.hosts[0], options...)
	if err != nil {
		return nil, fmt.Errorf("connect to Redis at %s: %w", c.address.hosts[0], err)
	}
	return conn, nil
}

func (r *redisStream) Publish(ctx context.Context, m Message) error {
	conn, err := r.pool.GetContext(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	entry := redis.Args{}.Add(m.Topic, "*", "body", m.Body)
	headers := m.withKey()
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		entry = entry.Add(name, headers[name])
	}
	_, err = redis.DoContext(conn, ctx, "XADD", entry...)
	return err
}

func (r *redisStream) Close() { _ = r.pool.Close() }
